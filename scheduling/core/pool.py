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
5. With a `locality_quantum` a request whose prefix is where there is room goes ahead of its turn,
   within the bounds of locality.py.
"""

from __future__ import annotations

from math import inf
from typing import NamedTuple

import msgspec

from scheduling.core.capacity import FULL, Endpoint, Endpoints
from scheduling.core.lanes import Lane, Lanes
from scheduling.core.locality import LOOK_AHEAD, at_home, overtake
from scheduling.core.meter import Meter
from scheduling.core.model import LaneConfig, PoolConfig
from scheduling.core.request import Request

PASSERS = 4  # tenants, in the order of their turns, that a smaller request is looked for among


class Decision(msgspec.Struct):
    request: Request
    endpoint: Endpoint
    passed: Request | None = None  # whose turn it was, when it fits nowhere
    turn: Request | None = None  # whose turn it is, when this one may go ahead of it for locality


class Hold(NamedTuple):
    """What the request whose turn it is, but which fits nowhere, keeps others from."""

    blocked: Request | None = None
    barred: Endpoint | None = None  # takes nobody else
    rank: float = inf  # lanes from here on wait

    def lets_pass(self, request: Request) -> bool:
        blocked = self.blocked
        if blocked is None or request.lane is not blocked.lane:
            return True
        share = blocked.flow.share
        return request.flow.share.v <= share.v + blocked.ticket.cost / share.account.weight


NOTHING_HELD = Hold()


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
        endpoint.set_healthy(healthy)
        self.endpoints.measure()
        self._recount()
        return True

    def set_capacity(self, endpoint_id: str, max_running: int, max_load: float) -> bool:
        endpoint = self.endpoints.all.get(endpoint_id)
        if endpoint is None or (endpoint.max_running, endpoint.max_load) == (max_running, max_load):
            return False
        endpoint.max_running, endpoint.max_load = max_running, max_load
        endpoint.measure()
        self.endpoints.measure()
        return True

    # --- deciding ---------------------------------------------------------------------------

    def decide(self) -> Decision | None:
        """The next dispatch; it is not carried out here."""
        ends = self.endpoints
        room = ends.room() if self.queued else FULL
        if room == FULL:
            return None
        hold = NOTHING_HELD
        for head in self.lanes.in_turn():
            lane = head.lane
            allowed = self.lanes.room(lane, ends) if lane.ceilings else inf
            if allowed == FULL or lane.rank >= hold.rank:
                continue
            fits = room if room < allowed else allowed
            decision = self._local(head, fits, hold) if self.locality_quantum else None
            decision = decision or self._place(head, fits, hold)
            if decision is None:
                if hold.blocked is None:
                    hold = self._hold_for(head, allowed)
                    room = ends.room(hold.barred) if hold.barred else room
                decision = self._smaller(lane, min(room, allowed), hold)
            if decision is not None:
                return decision
        return None

    def _place(self, request: Request, room: float, hold: Hold) -> Decision | None:
        ticket = request.ticket
        if ticket.load > room:
            return None
        endpoint = self.endpoints.choose(ticket.load, ticket.prefix, hold.barred)
        return None if endpoint is None else Decision(request, endpoint, hold.blocked)

    def _hold_for(self, head: Request, allowed: float) -> Hold:
        """What `head`, which fits nowhere, keeps others from."""
        if not head.passed_by or head.passed_by < head.ticket.cost:
            return Hold(head)
        if head.ticket.load > allowed:
            return Hold(head, rank=head.lane.rank)
        return Hold(head, barred=self.endpoints.nearest_to_fit(head.ticket.load))

    def _smaller(self, lane: Lane, room: float, hold: Hold) -> Decision | None:
        def passing(request: Request) -> Decision | None:
            if request.ticket.load > room or not hold.lets_pass(request):
                return None
            return self._place(request, room, hold)

        if lane.rank >= hold.rank:
            return None
        smallest = lane.queue.smallest()
        if smallest is None or smallest.ticket.load > room:
            return None
        return lane.queue.find(PASSERS, passing) or passing(smallest)

    def _local(self, turn: Request, room: float, hold: Hold) -> Decision | None:
        def holder(request: Request) -> Endpoint | None:
            ticket = request.ticket
            if ticket.load > room:
                return None
            return self.endpoints.holder(ticket.load, ticket.prefix, hold.barred)

        def choose(first: Request) -> Decision | None:
            found = at_home(first, turn, self.locality_quantum, holder)
            return None if found is None else Decision(*found, hold.blocked, turn)

        return turn.lane.queue.find(LOOK_AHEAD, choose)

    # --- carrying out -----------------------------------------------------------------------

    def add(self, request: Request, tick: int) -> None:
        ticket = request.ticket
        if ticket.cost > self.lanes.largest:
            self.lanes.largest = ticket.cost
        if ticket.cost > self.units_per_load * ticket.load and ticket.load > 0:
            self.units_per_load = ticket.cost / ticket.load
        self.queued += 1
        request.lane.queue.add(request, tick)

    def remove(self, request: Request) -> None:
        """Out of the queue, whatever comes next."""
        self.queued -= 1
        request.lane.queue.remove(request)
        if not request.lane.queue.queued:
            request.lane.credit = 0.0

    def start(self, decision: Decision) -> None:
        request = decision.request
        if decision.passed is not None:
            decision.passed.passed_by += request.ticket.cost
        if decision.turn is not None:
            overtake(request, decision.turn)
        self.remove(request)
        flow = request.flow
        self.running += 1
        request.lane.running += 1
        flow.running += 1
        flow.share.running += 1
        self.occupy(request, decision.endpoint)

    def end(self, request: Request) -> None:
        flow = request.flow
        self.running -= 1
        request.lane.running -= 1
        flow.running -= 1
        flow.share.running -= 1
        self.vacate(request)

    def occupy(self, request: Request, endpoint: Endpoint) -> None:
        endpoint.take(request)
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
