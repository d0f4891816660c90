"""The product itself: `scheduling.core`, driven and not copied."""

from __future__ import annotations

from dataclasses import replace

from scheduling.core.dispatcher import Core
from scheduling.core.model import Grant, SchedulerConfig, Ticket


class Fairlane:
    """Weighted VTC with lanes. `locality_quantum` replaces that of the policy, where given."""

    def __init__(self, config: SchedulerConfig, locality_quantum: float | None = None) -> None:
        if locality_quantum is not None:
            pools = {
                name: replace(pool, locality_quantum=locality_quantum)
                for name, pool in config.pools.items()
            }
            config = replace(config, pools=pools)
        self.core = Core(config)

    def arrive(self, ticket: Ticket, now: float, interaction: str = "") -> str | None:
        refused = self.core.enqueue(ticket, now)
        return None if refused is None else refused.reason

    def dispatch(self, now: float) -> list[Grant]:
        return self.core.dispatch(now)

    def charge(self, request_id: str, cost: float) -> None:
        self.core.charge(request_id, cost)

    def settle(self, request_id: str, cost: float) -> None:
        self.core.settle(request_id, cost)

    def cancel(self, request_id: str) -> bool:
        return self.core.cancel(request_id)
