"""Weighted virtual token counters: who goes next inside one lane of one pool.

Source: Sheng et al., Fairness in Serving Large Language Models, OSDI 2024, with weights, estimates
and a second level (applications inside a tenant) added; docs/scheduling.md tells it in prose.

1. Next is the waiting tenant with the least `v` (counters.py); ties go to the request that came
   first. Inside a tenant the same rule chooses among its applications; inside an application it
   is first in, first out.
2. Lift: who comes to wait again starts at no less than the least `v` among those who wait, or, if
   nobody waits, than the `v` of whoever left last. Idleness earns nothing.
3. A tenant at its own limit is parked: it does not compete, sets no floor for others, and comes
   back no further behind them than by one request, the costliest that the lane has seen. So a
   limit touched for a moment costs it nothing, and one that holds it back for long earns nothing.
4. The heap holds at most one live entry per tenant, and it is never above the tenant's true key:
   a decrease pushes a fresh entry, an increase is noticed when the entry comes up. Dead entries
   are dropped when they come up, and all at once before they outnumber the live ones.
   A tenant is parked when its true key comes up, so that the heap's staleness decides nothing.
5. An idle tenant is forgotten once the floor has reached its `v`; `ground` remembers the highest
   `v` so forgotten, since refunds may lower the floor again, and nobody starts below it.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapify, heappop, heappush, heapreplace
from typing import TYPE_CHECKING, TypeVar

from scheduling.core.counters import KEEP, Entry, Flow, Share
from scheduling.core.request import Request

if TYPE_CHECKING:
    from scheduling.core.accounts import Account

T = TypeVar("T")


class FairQueue:
    """Everybody who waits in one lane of one pool, in the order of invariant 1."""

    __slots__ = (
        "cost",
        "ground",
        "heap",
        "largest",
        "last",
        "queued",
        "shares",
        "small",
        "sweep_at",
    )

    def __init__(self) -> None:
        self.shares: dict[str, Share] = {}
        self.heap: list[Entry] = []
        self.small: list[tuple[float, int, Flow]] | None = None  # see `smallest`
        self.last: Share | None = None  # the tenant that left last
        self.ground = 0.0
        self.queued = 0
        self.cost = 0.0  # of all that wait here
        self.largest = 0.0  # the costliest request seen
        self.sweep_at = KEEP

    # --- who is next ------------------------------------------------------------------------

    def first(self) -> Request | None:
        """The next request of the tenant whose turn it is."""
        heap = self.heap
        while heap:
            entry = heap[0]
            share = entry[2]
            if entry is not share.entry:
                heappop(heap)
                continue
            head = share.next()
            if entry[1] != head.seq or entry[0] != share.v:
                share.entry = (share.v, head.seq, share)
                heapreplace(heap, share.entry)
            elif share.account.running >= share.account.limit:
                self._park(share)  # its entry is dead now, and dropped next
            else:
                return head
        return None

    def find(self, count: int, choose: Callable[[Request], T | None]) -> T | None:
        """What `choose` makes of the next requests of the first tenants in turn, until it makes
        something of one."""
        asked: list[Entry] = []
        found: T | None = None
        while found is None and len(asked) < count and (head := self.first()) is not None:
            asked.append(heappop(self.heap))
            found = choose(head)
        for entry in asked:
            heappush(self.heap, entry)
        return found

    def smallest(self) -> Request | None:
        """The request of least load among those at the head of an application's queue.

        Its index is built when a lane first needs it and kept until the lane is empty: most
        pools are full by their number of requests, where every request fits or none does.
        """
        if self.small is None:
            self._index_small()
        small = self.small
        while small:
            _, seq, flow = small[0]
            head, share = flow.head, flow.share
            if head is not None and head.seq == seq and not share.parked:
                if share.account.running < share.account.limit:
                    return head
                self._park(share)
            heappop(small)
        return None

    # --- come and go ------------------------------------------------------------------------

    def flow(self, account: Account, application: str) -> Flow:
        share = self.shares.get(account.name)
        if share is None:
            if len(self.shares) >= self.sweep_at:
                self._sweep()
            share = self.shares[account.name] = Share(account, self)
        share.account = account  # a tenant that was idle everywhere comes back with a new one
        return share.flow(application)

    def add(self, request: Request, tick: int) -> None:
        flow = request.flow
        share = flow.share
        if share.queued == 0:
            self._lift(share, tick)
        if flow.head is None:
            share.lift_flow(flow, tick)
        flow.append(request)
        share.queued += 1
        self.queued += 1
        self.cost += request.ticket.cost
        if request.ticket.cost > self.largest:
            self.largest = request.ticket.cost
        if flow.head is request:
            self.touch(share)
            self._note_head(flow)

    def remove(self, request: Request) -> None:
        flow = request.flow
        share = flow.share
        was_head = flow.head is request
        flow.unlink(request)
        share.queued -= 1
        self.queued -= 1
        self.cost = self.cost - request.ticket.cost if self.queued else 0.0
        if flow.head is None:
            share.last = flow
        elif was_head:
            self._note_head(flow)
        if share.queued == 0:
            self._leave(share)

    def touch(self, share: Share) -> None:
        """Its key may have become smaller."""
        if share.queued == 0 or share.parked:
            return
        entry = share.entry
        if entry is not None and entry[0] < share.v:
            return
        seq = share.next().seq
        if entry is not None and entry[0] == share.v and entry[1] <= seq:
            return
        share.entry = (share.v, seq, share)
        heappush(self.heap, share.entry)
        if len(self.heap) > 2 * len(self.shares) + KEEP:
            self.heap[:] = [s.entry for s in self.shares.values() if s.entry is not None]
            heapify(self.heap)

    def unpark(self, share: Share) -> None:
        """Its tenant is under its limit again."""
        share.parked = False
        floor = self._floor(share)
        if floor is not None:
            share.v = max(share.v, floor - self.largest / share.account.weight)
        self.touch(share)
        for flow in share.flows:
            self._note_head(flow)

    # --- inside -----------------------------------------------------------------------------

    def _floor(self, share: Share) -> float | None:
        """What a lift of `share` would lift it to; None when there is nobody to go by."""
        head = self.first()
        other = head.flow.share if head is not None else self.last
        return None if other is None or other is share else other.v

    def _lift(self, share: Share, tick: int) -> None:
        floor = self._floor(share)
        if floor is not None:
            share.lift(floor, tick)

    def _leave(self, share: Share) -> None:
        share.entry = None
        if not share.parked:
            self.last = share
        else:
            share.parked = False
            share.account.parked = tuple(s for s in share.account.parked if s is not share)
        if self.queued == 0:
            self.heap.clear()
            self.small = None

    def _park(self, share: Share) -> None:
        share.entry = None
        share.parked = True
        share.account.parked += (share,)
        self.last = share

    def _note_head(self, flow: Flow) -> None:
        if self.small is None or flow.head is None:
            return
        heappush(self.small, (flow.head.ticket.load, flow.head.seq, flow))
        if len(self.small) > 2 * self.queued + KEEP:
            self._index_small()

    def _index_small(self) -> None:
        self.small = [
            (flow.head.ticket.load, flow.head.seq, flow)
            for share in self.shares.values()
            if not share.parked
            for flow in share.flows
            if flow.head is not None
        ]
        heapify(self.small)

    def _sweep(self) -> None:
        head = self.first()
        floor = head.flow.share if head is not None else self.last
        for name, share in list(self.shares.items()):
            if not share.queued and not share.running and floor and share.v <= floor.v:
                self.ground = max(self.ground, share.v)
                del self.shares[name]
        self.sweep_at = max(KEEP, 2 * len(self.shares))
