"""Policies that look at what the engines' prefix caches hold. Unlike a gateway they know it
exactly, which makes them the stronger for it: they are the measure, not the proposal."""

from __future__ import annotations

from collections import defaultdict

from scheduling.core.model import SchedulerConfig, Ticket
from scheduling.simulate.policies.base import Baseline, Cached, Waiting

LOOK_AHEAD = 64  # waiting requests that a decision compares


class LongestPrefix(Baseline):
    """Greedy: of those that wait longest, the one of whose prompt most is cached already."""

    def next(self, pool: Waiting) -> Ticket | None:
        return self.best(pool, list(pool.all.values())[:LOOK_AHEAD])

    def best(self, pool: Waiting, tickets: list[Ticket]) -> Ticket:
        return max(tickets, key=lambda ticket: self._hit(ticket, pool)[0])

    def place(self, ticket: Ticket, pool: Waiting) -> str | None:
        tokens, endpoint = self._hit(ticket, pool)
        return endpoint if tokens else super().place(ticket, pool)

    def _hit(self, ticket: Ticket, pool: Waiting) -> tuple[int, str]:
        """The most tokens that an endpoint with room holds of its prompt."""
        best = 0, ""
        for endpoint in pool.slots.open(ticket.load):
            tokens = self.cached(ticket.request_id, endpoint)
            if tokens > best[0]:
                best = tokens, endpoint
        return best


class Deficit(LongestPrefix):
    """After DLPM (Cao et al., arXiv 2501.14312): greedy among the tenants that have deficit left;
    when no waiting tenant has any, each gets another quantum by its weight."""

    def __init__(self, config: SchedulerConfig, cached: Cached, quantum: float) -> None:
        super().__init__(config, cached)
        self._quantum = quantum
        self._left: dict[tuple[str, str], float] = defaultdict(float)

    def next(self, pool: Waiting) -> Ticket | None:
        name = pool.name
        while not (entitled := [t for t in pool.tenants if self._left[name, t] > 0]):
            for tenant in pool.tenants:
                self._left[name, tenant] += self._quantum * self.weights[tenant]
        share = max(1, LOOK_AHEAD // len(entitled))
        firsts = [t for tenant in entitled for t in list(pool.tenants[tenant].values())[:share]]
        return self.best(pool, firsts)

    def serve(self, ticket: Ticket, units: float) -> None:
        self._left[ticket.pool, ticket.tenant] -= units
