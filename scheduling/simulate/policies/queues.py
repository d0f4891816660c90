"""First come first served with a limit on requests a minute; and taking turns by request."""

from __future__ import annotations

from collections import defaultdict, deque

from scheduling.core.model import SchedulerConfig, Ticket
from scheduling.simulate.policies.base import Baseline, Cached, Waiting


class RpmLimit(Baseline):
    """Refuses what comes past so many requests in the last minute of a tenant."""

    def __init__(self, config: SchedulerConfig, cached: Cached, per_minute: int) -> None:
        super().__init__(config, cached)
        self._most = per_minute
        self._entered: dict[str, deque[float]] = defaultdict(deque)

    def refuse(self, ticket: Ticket, now: float, interaction: str) -> str | None:
        entered = self._entered[ticket.tenant]
        while entered and entered[0] <= now - 60:
            entered.popleft()
        if len(entered) >= self._most:
            return "requests_per_minute"
        entered.append(now)
        return None


class RoundRobin(Baseline):
    """One request of each waiting tenant in turn, whatever it costs."""

    def __init__(self, config: SchedulerConfig, cached: Cached) -> None:
        super().__init__(config, cached)
        self._turns: dict[str, dict[str, None]] = {name: {} for name in self.pools}

    def next(self, pool: Waiting) -> Ticket | None:
        return pool.first_of(next(iter(self._turns[pool.name])))

    def joined(self, ticket: Ticket, pool: Waiting) -> None:
        self._turns[ticket.pool].setdefault(ticket.tenant)

    def left(self, ticket: Ticket, pool: Waiting) -> None:
        turns = self._turns[ticket.pool]
        del turns[ticket.tenant]
        if ticket.tenant in pool.tenants:
            turns[ticket.tenant] = None
