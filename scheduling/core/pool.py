"""One pool: which request goes next, and to which endpoint.

1. The turn goes lane → tenant → application → request (lanes.py, vtc.py). Every decision asks
   anew whose turn it is.
2. Work is conserved: while a request whose turn it could be fits on an endpoint, something is
   dispatched. When the one whose turn it is fits nowhere, smaller ones pass it: the next in turn
   among a few, else the smallest of all.
3. But nobody may get ahead for good by being small: in its own lane only a tenant passes whose
   counter is not past where the blocked tenant's will be once it is served. And a large request
   must not wait for ever: once those who passed got as much service as it asks for, the endpoint
   nearest to having room for it takes nobody else until it fits. Where not an endpoint but a
   ceiling has no room, its lane and those below wait. So with loads that differ, fairness and
   the end of waiting come before a full endpoint, for at most the time that one drains. A
   decision in which a better lane has the turn is not bound by any of this.
4. A lane whose ceiling leaves it no slot has no turn, and holds nobody up.
5. `locality_quantum`: among the tenants within that much of the least, one whose next request has
   its prefix on an endpoint with room goes first. Gaps grow by the quantum and by no more.
"""

from __future__ import annotations

from typing import NamedTuple

from scheduling.core.capacity import Endpoint, Endpoints
from scheduling.core.lanes import FULL, Lane, Lanes
from scheduling.core.meter import Meter
from scheduling.core.model import LaneConfig, PoolConfig
from scheduling.core.request import Request

LOOK_AHEAD = 16  # tenants, in the order of their turns, that another choice is looked for among


class Decision(NamedTuple):
    request: Request
    endpoint: Endpoint
    passed: Request | None = None  # whose turn it was, when it fits nowhere


class Hold:
    """What the request whose turn it is keeps others from, within one decision."""

    __slots__ = ("barred", "blocked", "rank")

    def __init__(self) -> None:
        self.blocked: Request | None = None
        self.barred: Endpoint | None = None
        self.rank: float = float("inf")  # lanes from here on wait

    def lets_pass(self, request: Request) -> bool:
        blocked = self.blocked
        if blocked is None or request.lane is not blocked.lane:
            return True
        share = blocked.flow.share
        return request.flow.share.v <= share.v + blocked.ticket.cost / share.account.weight


class Pool:
    def __init__(self, config: PoolConfig, lanes: tuple[LaneConfig, ...], now: float) -> None:
        self.name = config.name
        self.lanes = Lanes()
        self.endpoints = Endpoints()
        self.meter = Meter(now)
        self.queued = 0
        self.running = 0
        self.units_per_load = 0.0  # the highest ratio of cost to load seen
        self.configure(config, lanes)

    def configure(self, config: PoolConfig | None, lanes: tuple[LaneConfig, ...]) -> None:
        """None: the pool was removed, and stays until its last request has ended."""
        self.removed = config is None
        self.locality_quantum = config.locality_quantum if config else 0.0
        self.lanes.configure(lanes)
        self.endpoints.configure(config.endpoints if config else ())
        self._recount()

    def set_healthy(self, endpoint_id: str, healthy: bool) -> bool:
        endpoint = self.endpoints.all.get(endpoint_id)
        if endpoint is None or endpoint.healthy == healthy:
            return False
        endpoint.healthy = healthy
        self.endpoints.measure()
        self._recount()
        return True

    # --- deciding ---------------------------------------------------------------------------

    def decide(self) -> Decision | None:
        """The next dispatch; it is not carried out here."""
        if not self.queued or not self.endpoints.any_open():
            return None
        hold = Hold()
        for lane in self.lanes.in_turn():
            if lane.rank >= hold.rank:
                continue
            room = self.lanes.room(lane, self.endpoints.max_running, self.endpoints.max_load)
            if room == FULL:
                continue
            decision = self._decide_in(lane, room, hold)
            if decision is not None:
                return decision
        return None

    def _decide_in(self, lane: Lane, room: float, hold: Hold) -> Decision | None:
        first = lane.queue.first()
        assert first is not None
        head = first.next()
        if self.locality_quantum:
            local = self._local(lane, first.v + self.locality_quantum, room, hold)
            if local is not None:
                return local
        endpoint = self._place(head, room, hold)
        if endpoint is not None:
            return Decision(head, endpoint, hold.blocked)
        if hold.blocked is None:
            self._block(head, room, hold)
        return self._smaller(lane, room, hold) if lane.rank < hold.rank else None

    def _place(self, request: Request, room: float, hold: Hold) -> Endpoint | None:
        ticket = request.ticket
        if ticket.load > room:
            return None
        return self.endpoints.choose(ticket.load, ticket.prefix, hold.barred)

    def _block(self, head: Request, room: float, hold: Hold) -> None:
        hold.blocked = head
        if head.passed_by < head.ticket.cost or not head.passed_by:
            return
        if head.ticket.load > room:
            hold.rank = head.lane.rank
        else:
            hold.barred = self.endpoints.nearest_to_fit(head.ticket.load)

    def _smaller(self, lane: Lane, room: float, hold: Hold) -> Decision | None:
        smallest = lane.queue.smallest()
        if smallest is None or self._place(smallest, room, hold) is None:
            return None
        heads = [share.next() for share in lane.queue.nearest(LOOK_AHEAD)]
        for request in [*heads, smallest]:
            if hold.lets_pass(request):
                endpoint = self._place(request, room, hold)
                if endpoint is not None:
                    return Decision(request, endpoint, hold.blocked)
        return None

    def _local(self, lane: Lane, until: float, room: float, hold: Hold) -> Decision | None:
        for share in lane.queue.nearest(LOOK_AHEAD):
            if share.v > until:
                break
            request = share.next()
            ticket = request.ticket
            endpoint = self.endpoints.holder(ticket.load, ticket.prefix)
            if endpoint and endpoint is not hold.barred and ticket.load <= room:
                return Decision(request, endpoint, hold.blocked)
        return None

    # --- carrying out -----------------------------------------------------------------------

    def add(self, request: Request, tick: int) -> None:
        ticket = request.ticket
        self.lanes.largest = max(self.lanes.largest, ticket.cost)
        if ticket.load > 0:
            self.units_per_load = max(self.units_per_load, ticket.cost / ticket.load)
        self.queued += 1
        request.lane.queue.add(request, tick)

    def remove(self, request: Request) -> None:
        """Out of the queue, whatever comes next."""
        self.queued -= 1
        request.lane.queue.remove(request)
        if not request.lane.queue.queued:
            request.lane.credit = 0.0

    def start(self, decision: Decision) -> None:
        request, endpoint, passed = decision
        if passed is not None:
            passed.passed_by += request.ticket.cost
        self.remove(request)
        for counted in (self, request.lane, request.flow.share, request.flow):
            counted.running += 1
        self.occupy(request, endpoint)

    def end(self, request: Request) -> None:
        self.vacate(request)
        for counted in (self, request.lane, request.flow.share, request.flow):
            counted.running -= 1

    def occupy(self, request: Request, endpoint: Endpoint) -> None:
        endpoint.take(request)
        self.endpoints.remember(request.ticket.prefix, endpoint)
        if endpoint.available:
            request.lane.occupy(1, request.ticket.load)

    def vacate(self, request: Request) -> None:
        endpoint = request.endpoint
        assert endpoint is not None
        endpoint.release(request)
        if endpoint.available:
            request.lane.occupy(-1, -request.ticket.load)

    def _recount(self) -> None:
        """Ceilings count what runs on available endpoints; some may have come or gone."""
        for lane in self.lanes.by_rank:
            lane.slots, lane.load = 0, 0.0
        for endpoint in self.endpoints.all.values():
            for request in endpoint.requests if endpoint.available else ():
                request.lane.occupy(1, request.ticket.load)
