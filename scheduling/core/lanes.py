"""Lanes of one pool: which of them is served next, and how much of the pool it may fill.

Source: docs/scheduling.md, "Lanes".

1. Of every unit that the pool gives while a lane is backlogged, its `reserved_share` becomes the
   lane's credit. Credit is spent when the lane is served, whether credit or rank chose it, never
   below nothing; it is capped at twice the costliest request that the pool has seen, so that a
   lane that could not run for a while has no claim on a long stretch afterwards; it is forgotten
   when the lane has nobody waiting.
2. First comes the lane whose credit covers its next request; of several the one with the least
   slack, (L + cost - credit) / share: its deadline is L / share after its credit covered it, L
   being the largest request. Then the best rank. So between two dispatches a lane with share s
   waits for at most (its next request + L) / s + L of service: it earns its request, at s a unit,
   and has L / s until its deadline. In any stretch each lane covers no more than its share and
   one request that it had nearly earned, which L / share leaves time for, so that earliest
   deadlines first are late by no more than one request that had begun before.
3. A lane and those below it together fill at most `ceiling` of the capacity that is available, by
   requests and by load; but one request is always allowed, so that no lane is closed altogether.
"""

from __future__ import annotations

from math import floor, inf

from scheduling.core.capacity import FULL, Endpoints
from scheduling.core.model import LaneConfig
from scheduling.core.request import Request
from scheduling.core.vtc import FairQueue


class Lane:
    __slots__ = (
        "ceiling",
        "ceilings",
        "credit",
        "load",
        "name",
        "queue",
        "rank",
        "removed",
        "running",
        "served",
        "share",
        "slots",
    )

    def __init__(self, config: LaneConfig) -> None:
        self.name = config.name
        self.queue = FairQueue()
        self.credit = 0.0
        self.served = 0.0
        self.ceilings: list[Lane] = []  # itself and lanes above, as far as they have one
        self.running = 0
        self.slots = 0  # of `running`, those on available endpoints
        self.load = 0.0  # that these occupy
        self.configure(config)

    def configure(self, config: LaneConfig | None) -> None:
        """None: the lane was removed, and stays until its last request has ended."""
        self.removed = config is None
        self.share = config.reserved_share if config else 0.0
        self.ceiling = config.ceiling if config else 1.0
        if config is not None:
            self.rank = config.rank

    def occupy(self, slots: int, load: float) -> None:
        self.slots += slots
        self.load = self.load + load if self.slots else 0.0


class Lanes:
    """The lanes of one pool, best rank first."""

    def __init__(self) -> None:
        self.all: dict[str, Lane] = {}
        self.by_rank: list[Lane] = []
        self._sharing: list[Lane] = []  # those with a reserved share
        self.largest = 0.0  # the costliest request that this pool has seen

    def configure(self, configs: tuple[LaneConfig, ...]) -> None:
        wanted = {config.name: config for config in configs}
        for name, config in wanted.items():
            if name not in self.all:
                self.all[name] = Lane(config)
        for name, lane in self.all.items():
            lane.configure(wanted.get(name))
        self.all = {n: lane for n, lane in self.all.items() if n in wanted or lane.running}
        self.by_rank = sorted(self.all.values(), key=lambda lane: lane.rank)
        self._sharing = [lane for lane in self.by_rank if lane.share]
        tops = [lane for lane in self.by_rank if lane.ceiling < 1]
        for lane in self.by_rank:
            lane.ceilings = [top for top in tops if top.rank <= lane.rank]

    def in_turn(self) -> list[Request]:
        """The next request of each lane that has one, in the order of invariant 2."""
        ready = []
        for lane in self.by_rank:
            if lane.queue.queued:
                head = lane.queue.first()
                if head is not None:
                    ready.append(head)
        if len(ready) > 1:
            ready.sort(key=self._slack)  # stable: by rank among equals
        return ready

    def _slack(self, head: Request) -> float:
        """Service that may pass before the lane's deadline; none set while credit falls short."""
        lane, cost = head.lane, head.ticket.cost
        covered = lane.share and lane.credit >= cost
        return (self.largest + cost - lane.credit) / lane.share if covered else inf

    def room(self, lane: Lane, ends: Endpoints) -> float:
        """The load that the ceilings over `lane` leave to it; FULL when they leave no slot."""
        room = inf
        for top in lane.ceilings:
            under = [below for below in self.by_rank if below.rank >= top.rank]
            slots = sum(below.slots for below in under)
            if slots == 0:
                continue
            if slots >= floor(top.ceiling * ends.max_running + 1e-9):
                return FULL
            room = min(room, top.ceiling * ends.max_load - sum(below.load for below in under))
        return room

    def charged(self, request: Request, units: float) -> None:
        """`request` is charged: every waiting lane earns of it, its own lane pays."""
        self._earn(units)
        lane = request.lane
        lane.served += units
        spent = lane.credit if lane.credit < units else units
        request.spent += spent
        lane.credit -= spent

    def refunded(self, request: Request, units: float, part: float) -> None:
        """The reverse, for that part of what `request` was charged."""
        self._earn(-units)
        lane = request.lane
        lane.served -= units
        if lane.queue.queued:
            # Only what was paid comes back: a dispatch by rank without credit took nothing.
            lane.credit = min(lane.credit + request.spent * part, 2 * self.largest)

    def _earn(self, units: float) -> None:
        most = 2 * self.largest
        for lane in self._sharing:
            if lane.queue.queued:
                credit = lane.credit + lane.share * units
                lane.credit = most if credit > most else credit if credit > 0 else 0.0
