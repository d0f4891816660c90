"""Policies that serve the tenant with the least counter, each counting in its own way."""

from __future__ import annotations

from collections import defaultdict, deque

from scheduling.core.model import SchedulerConfig, Ticket
from scheduling.simulate.policies.base import Baseline, Cached, Waiting

FADE = 0.05  # of an application's mean cost is the newest request's


class LeastCounter(Baseline):
    """The VTC paper's LCF: virtual token counters without the lift. Who was idle, or is new, goes
    before everybody until its counter has caught up."""

    def __init__(self, config: SchedulerConfig, cached: Cached) -> None:
        super().__init__(config, cached)
        self.counters: dict[tuple[str, str], float] = defaultdict(float)

    def next(self, pool: Waiting) -> Ticket | None:
        firsts = [pool.first_of(tenant) for tenant in pool.tenants]
        return min(firsts, key=lambda ticket: self.counters[ticket.pool, ticket.tenant])

    def serve(self, ticket: Ticket, units: float) -> None:
        self.counters[ticket.pool, ticket.tenant] += units / self.weights[ticket.tenant]


class FairServe(LeastCounter):
    """After Khan et al. (arXiv 2411.15997): service counts in the application's usual requests,
    so that one with long requests is not behind for that; limits on requests refuse only while
    the pool is overloaded, and never in the middle of an interaction.

    A tenant that comes back is lifted to the least of those that wait, as their counter is.
    """

    def __init__(self, config: SchedulerConfig, cached: Cached, per_minute: int) -> None:
        super().__init__(config, cached)
        self._most = per_minute
        self._usual: dict[tuple[str, str], float] = {}
        self._entered: dict[str, deque[float]] = defaultdict(deque)
        self._known: set[tuple[str, str]] = set()  # interactions that were let in

    def refuse(self, ticket: Ticket, now: float, interaction: str) -> str | None:
        entered = self._entered[ticket.tenant]
        while entered and entered[0] <= now - 60:
            entered.popleft()
        overloaded = bool(self.pools[ticket.pool].all)
        if overloaded and len(entered) >= self._most and not self._continues(ticket, interaction):
            return "requests_per_minute"
        entered.append(now)
        if interaction:
            self._known.add((ticket.tenant, interaction))
        return None

    def _continues(self, ticket: Ticket, interaction: str) -> bool:
        return (ticket.tenant, interaction) in self._known

    def joined(self, ticket: Ticket, pool: Waiting) -> None:
        if len(pool.tenants[ticket.tenant]) > 1:
            return
        others = [self.counters[ticket.pool, t] for t in pool.tenants if t != ticket.tenant]
        if others:
            key = ticket.pool, ticket.tenant
            self.counters[key] = max(self.counters[key], min(others))

    def serve(self, ticket: Ticket, units: float) -> None:
        usual = self._usual.get((ticket.tenant, ticket.application)) or ticket.cost or 1.0
        super().serve(ticket, units / usual)

    def settle(self, request_id: str, cost: float) -> None:
        ticket = self.tickets[request_id]
        super().settle(request_id, cost)
        key = ticket.tenant, ticket.application
        usual = self._usual.get(key, cost)
        self._usual[key] = usual + FADE * (cost - usual)
