"""Virtual counters of tenants and of their applications, and the queues that these hold.

Source: docs/scheduling.md, "Weighted VTC inside a lane".

1. A counter `v` is service ÷ weight, divided at the moment of the charge, never when compared: a
   new weight says nothing about the past.
2. A refund gives back what its charge added, under the weight of that charge. Of a charge that is
   older than the last lift it gives back only what the lift did not already cover.
3. Doubles are precise enough: at 10^12 units their step is 0.0001 units.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from scheduling.core.request import Request

if TYPE_CHECKING:
    from scheduling.core.accounts import Account
    from scheduling.core.vtc import FairQueue

Entry = tuple[float, int, "Share"]  # key and owner, in the heap of a FairQueue
KEEP = 64  # below this many entries, tidying up costs more than it saves


class Counter:
    """Normalised service of a tenant or an application, as far as it is charged."""

    __slots__ = ("lifted_at", "running", "slack", "v")

    def __init__(self, v: float) -> None:
        self.v = v
        self.running = 0
        self.lifted_at = 0  # tick of the last lift
        self.slack = 0.0  # how far v stood above the floor then: what older refunds may take

    def lift(self, floor: float, tick: int) -> None:
        self.slack = max(0.0, self.v - floor)
        self.v = max(self.v, floor)
        self.lifted_at = tick

    def refund(self, step: float, dispatched: int) -> None:
        """Take back `step` of what a request dispatched at that tick was charged."""
        if dispatched <= self.lifted_at:
            step = min(step, self.slack)
            self.slack -= step
        self.v -= step


class Flow(Counter):
    """One application's requests, linked so that any of them can leave at once."""

    __slots__ = ("head", "name", "share", "tail")

    def __init__(self, name: str, share: Share) -> None:
        super().__init__(share.ground)
        self.name = name
        self.share = share
        self.head: Request | None = None
        self.tail: Request | None = None

    def append(self, request: Request) -> None:
        request.before = self.tail
        if self.tail is None:
            self.head = request
        else:
            self.tail.after = request
        self.tail = request

    def unlink(self, request: Request) -> None:
        before, after = request.before, request.after
        if before is None:
            self.head = after
        else:
            before.after = after
        if after is None:
            self.tail = before
        else:
            after.before = before
        request.before = request.after = None


class Share(Counter):
    """One tenant in one lane: its counter, and its applications."""

    __slots__ = (
        "account",
        "entry",
        "flows",
        "ground",
        "last",
        "parked",
        "queue",
        "queued",
        "served",
    )

    def __init__(self, account: Account, queue: FairQueue) -> None:
        super().__init__(queue.ground)
        self.account = account
        self.queue = queue
        self.flows: tuple[Flow, ...] = ()  # nearly always one
        self.entry: Entry | None = None  # its live entry in the heap
        self.last: Flow | None = None  # the application that left last
        self.ground = 0.0
        self.parked = False  # at its tenant's own limit
        self.queued = 0
        self.served = 0.0

    def flow(self, name: str) -> Flow:
        for flow in self.flows:
            if flow.name == name:
                return flow
        if len(self.flows) >= KEEP:
            self._forget_flows()
        flow = Flow(name, self)
        self.flows += (flow,)
        return flow

    def least(self) -> Flow | None:
        """Applications of one tenant are few: a scan beats a heap, and has nothing to go stale."""
        least: Flow | None = None
        key = (inf, 0)
        for flow in self.flows:
            if flow.head is not None and (flow.v, flow.head.seq) < key:
                least, key = flow, (flow.v, flow.head.seq)
        return least

    def next(self) -> Request:
        flows = self.flows
        flow = flows[0] if len(flows) == 1 else self.least()
        assert flow is not None
        assert flow.head is not None
        return flow.head

    def lift_flow(self, flow: Flow, tick: int) -> None:
        floor = self.least() or self.last
        if floor is not None and floor is not flow:
            flow.lift(floor.v, tick)

    def _forget_flows(self) -> None:
        floor = self.least() or self.last
        bar = floor.v if floor is not None else 0.0
        kept = tuple(f for f in self.flows if f.head is not None or f.running or f.v > bar)
        self.ground = max([self.ground, *(f.v for f in self.flows if f not in kept)])
        self.flows = kept
