"""What the simulator asks of a policy, and what the baselines have in common.

1. A policy decides who may enter, who is next, and on which endpoint; it sees what a gateway sees
   (tickets, output as it streams, what a request cost in the end) and no future.
2. Baselines keep one queue per pool and tenant. When the one whose turn it is fits nowhere, they
   wait: nobody passes it.
3. They know weights where their source has weights, and no lanes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, Protocol

from scheduling.core.model import EndpointConfig, Grant, PoolConfig, SchedulerConfig, Ticket

Forecast = Literal["none", "predicted", "oracle"]
Cached = Callable[[str, str], int]  # request, endpoint -> tokens of its prompt that are there


class Policy(Protocol):
    def arrive(self, ticket: Ticket, now: float, interaction: str = "") -> str | None:
        """Why the request may not wait; None when it waits."""

    def dispatch(self, now: float) -> list[Grant]:
        """Everything that can start now."""

    def charge(self, request_id: str, cost: float) -> None:
        """Service received so far, units."""

    def settle(self, request_id: str, cost: float) -> None:
        """The request is over and took so much."""

    def cancel(self, request_id: str) -> bool:
        """Take a waiting request away."""


class Slots:
    """Endpoints of one pool, the least full first."""

    def __init__(self, config: PoolConfig) -> None:
        self.all = {end.id: _Slot(end) for end in config.endpoints if end.available}
        self._held: dict[str, tuple[_Slot, float]] = {}

    def open(self, load: float) -> list[str]:
        """Those with room, least full first."""
        fitting = [slot for slot in self.all.values() if slot.fits(load)]
        return [slot.id for slot in sorted(fitting, key=lambda slot: slot.fullness)]

    def take(self, ticket: Ticket, endpoint: str) -> None:
        slot = self.all[endpoint]
        slot.running += 1
        slot.load += ticket.load
        self._held[ticket.request_id] = slot, ticket.load

    def release(self, request_id: str) -> None:
        slot, load = self._held.pop(request_id)
        slot.running -= 1
        slot.load -= load


class _Slot:
    def __init__(self, config: EndpointConfig) -> None:
        self.id = config.id
        self.max_running, self.max_load = config.max_running, config.max_load
        self.running = 0
        self.load = 0.0

    @property
    def fullness(self) -> float:
        return max(self.running / self.max_running, self.load / self.max_load)

    def fits(self, load: float) -> bool:
        free = self.running < self.max_running
        return free and (not self.running or self.load + load <= self.max_load)


class Waiting:
    """Those who wait for one pool, in the order of arrival, and the same by tenant."""

    def __init__(self, config: PoolConfig) -> None:
        self.name = config.name
        self.slots = Slots(config)
        self.all: dict[str, Ticket] = {}
        self.tenants: dict[str, dict[str, Ticket]] = {}

    def add(self, ticket: Ticket) -> None:
        self.all[ticket.request_id] = ticket
        self.tenants.setdefault(ticket.tenant, {})[ticket.request_id] = ticket

    def remove(self, ticket: Ticket) -> None:
        del self.all[ticket.request_id]
        own = self.tenants[ticket.tenant]
        del own[ticket.request_id]
        if not own:
            del self.tenants[ticket.tenant]

    def oldest(self) -> Ticket:
        return next(iter(self.all.values()))

    def first_of(self, tenant: str) -> Ticket:
        return next(iter(self.tenants[tenant].values()))


class Baseline:
    """First come, first served; a subclass says otherwise in `next` and keeps its counters."""

    def __init__(self, config: SchedulerConfig, cached: Cached) -> None:
        self.cached = cached
        self.weights = {name: tenant.weight for name, tenant in config.tenants.items()}
        self.pools = {name: Waiting(pool) for name, pool in config.pools.items()}
        self.tickets: dict[str, Ticket] = {}
        self.charged: dict[str, float] = {}  # of those that run

    def next(self, pool: Waiting) -> Ticket | None:
        return pool.oldest()

    def place(self, ticket: Ticket, pool: Waiting) -> str | None:
        open_now = pool.slots.open(ticket.load)
        return open_now[0] if open_now else None

    def refuse(self, ticket: Ticket, now: float, interaction: str) -> str | None:
        return None

    def serve(self, ticket: Ticket, units: float) -> None:
        """`ticket` got so much more service (less, when an estimate is corrected)."""

    def joined(self, ticket: Ticket, pool: Waiting) -> None:
        """It waits now."""

    def left(self, ticket: Ticket, pool: Waiting) -> None:
        """It does not wait any more."""

    # --- Policy -----------------------------------------------------------------------------

    def arrive(self, ticket: Ticket, now: float, interaction: str = "") -> str | None:
        reason = self.refuse(ticket, now, interaction)
        if reason is None:
            pool = self.pools[ticket.pool]
            self.tickets[ticket.request_id] = ticket
            pool.add(ticket)
            self.joined(ticket, pool)
        return reason

    def dispatch(self, now: float) -> list[Grant]:
        grants = []
        for pool in self.pools.values():
            while pool.all and (ticket := self.next(pool)) is not None:
                endpoint = self.place(ticket, pool)
                if endpoint is None:
                    break
                self._leave(ticket, pool)
                pool.slots.take(ticket, endpoint)
                self.charged[ticket.request_id] = 0.0
                self.charge(ticket.request_id, ticket.cost)
                grants.append(Grant(ticket.request_id, endpoint))
        return grants

    def charge(self, request_id: str, cost: float) -> None:
        more = cost - self.charged[request_id]
        if more > 0:
            self.charged[request_id] = cost
            self.serve(self.tickets[request_id], more)

    def settle(self, request_id: str, cost: float) -> None:
        ticket = self.tickets.pop(request_id)
        self.serve(ticket, cost - self.charged.pop(request_id))
        self.pools[ticket.pool].slots.release(request_id)

    def cancel(self, request_id: str) -> bool:
        ticket = self.tickets.get(request_id)
        if ticket is None or request_id in self.charged:
            return False
        self._leave(ticket, self.pools[ticket.pool])
        del self.tickets[request_id]
        return True

    def _leave(self, ticket: Ticket, pool: Waiting) -> None:
        pool.remove(ticket)
        self.left(ticket, pool)
