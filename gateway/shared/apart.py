"""One gateway on its own while the shared state is out of reach (`fail-open`), with its part.

1. Of everything that is counted for all gateways together it takes one part in so many as were last
   seen alive: requests and load of an endpoint, a tenant's requests and tokens a minute, its burst
   budget, `max_running` and `max_queued`. At least one of each.
2. What it runs already from before counts against its part of the endpoints.
3. Sustained budgets are whole: they begin at the last numbers known and follow the ledger, which
   every gateway writes, so they may be overrun by what runs and what ended in some seconds.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace as changed
from datetime import datetime
from typing import Any

from msgspec.structs import replace

from gateway.admission import Plan
from gateway.governor import LocalGovernor, Place
from metering.core.accounts import LocalAccounts
from metering.restore import Used, budgets_by_tenant
from scheduling.core.model import (
    EndpointConfig,
    PoolConfig,
    SchedulerConfig,
    TenantConfig,
    Ticket,
)
from scheduling.runtime import LocalScheduler
from scheduling.shared.scheduler import SharedScheduler
from tenants.core.snapshot import BudgetPolicy, Limits, PolicySnapshot

Taken = Mapping[tuple[str, str], tuple[int, float]]  # by pool and endpoint: requests, load


def taken_by(scheduler: SharedScheduler) -> Taken:
    """What runs here that the server let in, by endpoint."""
    found: dict[tuple[str, str], tuple[int, float]] = {}
    for running in scheduler.running.values():
        place = running.ticket.pool, running.endpoint
        requests, load = found.get(place, (0, 0.0))
        found[place] = requests + 1, load + running.ticket.load
    return found


def last_seen(snapshot: PolicySnapshot, shown: Mapping[str, Mapping[str, Any]]) -> list[Used]:
    """Of sustained budgets, as they were shown last, by account."""
    return [
        Used(tenant, policy, shown[account]["used"])
        for tenant, budgets in budgets_by_tenant(snapshot).items()
        for account, policy in budgets.items()
        if policy.period is not None and account in shown
    ]


def part_of(whole: int | None, parts: int) -> int | None:
    return whole and max(1, whole // parts)


def config_part(config: SchedulerConfig, parts: int, taken: Taken) -> SchedulerConfig:
    return SchedulerConfig(
        config.lanes,
        {name: _pool_part(pool, parts, taken) for name, pool in config.pools.items()},
        {name: _tenant_part(tenant, parts) for name, tenant in config.tenants.items()},
    )


def _pool_part(pool: PoolConfig, parts: int, taken: Taken) -> PoolConfig:
    def part(end: EndpointConfig) -> EndpointConfig:
        running, load = taken.get((pool.name, end.id), (0, 0.0))
        return changed(
            end,
            max_running=max(0, (part_of(end.max_running, parts) or 0) - running),
            max_load=max(0.0, end.max_load / parts - load),
        )

    return changed(pool, endpoints=tuple(map(part, pool.endpoints)))


def _tenant_part(tenant: TenantConfig, parts: int) -> TenantConfig:
    return changed(tenant, max_running=part_of(tenant.max_running, parts))


def limits_part(limits: Limits, parts: int) -> Limits:
    return changed(
        limits,
        requests_per_minute=part_of(limits.requests_per_minute, parts),
        tokens_per_minute=part_of(limits.tokens_per_minute, parts),
        max_running=part_of(limits.max_running, parts),
        max_queued=part_of(limits.max_queued, parts),
    )


def budget_part(policy: BudgetPolicy, parts: int) -> BudgetPolicy:
    if policy.period is not None:
        return policy
    refill = policy.refill_per_second / parts
    return changed(policy, cost=policy.cost / parts, refill_per_second=refill)


class Apart:
    def __init__(self, config: SchedulerConfig, parts: int, taken: Taken) -> None:
        self.parts = parts
        self._asked_for = (parts, config, dict(taken))
        self.accounts = LocalAccounts()
        self.scheduler = LocalScheduler(config_part(config, parts, taken))
        self.governor = LocalGovernor(self.accounts, self.scheduler)
        self.running: dict[str, tuple[Plan, Place]] = {}  # let in here

    def configure(self, config: SchedulerConfig, taken: Taken) -> None:
        if (self.parts, config, taken) != self._asked_for:
            self._asked_for = (self.parts, config, dict(taken))
            self.scheduler.configure(config_part(config, self.parts, taken))

    async def admit(self, plan: Plan) -> Place:
        hold = replace(
            plan.hold,
            limits=limits_part(plan.hold.limits, self.parts),
            budgets=tuple(budget_part(each, self.parts) for each in plan.hold.budgets),
        )
        place = await self.governor.admit(replace(plan, hold=hold))
        self.running[hold.request_id] = plan, place
        return place

    def settle(self, request_id: str, tokens: int, cost: float) -> None:
        self.running.pop(request_id, None)
        self.governor.settle(request_id, tokens, cost)

    def hand_over(self) -> list[tuple[Ticket, str, float]]:
        """What was let in here and runs, with its endpoint and charge: another's from now on."""
        running, self.running = self.running, {}
        for request_id in running:
            self.governor.settle(request_id, 0, 0.0)
        return [
            (
                replace(plan.ticket, lane=place.lane.name),
                place.grant.endpoint,
                plan.ticket.cost,
            )
            for plan, place in running.values()
        ]

    def budgets(
        self, budgets: Mapping[str, Sequence[BudgetPolicy]], at: datetime
    ) -> dict[str, list[dict[str, Any]]]:
        now = time.monotonic()
        return {
            tenant: self.accounts.budgets(tuple(budget_part(b, self.parts) for b in own), now, at)
            for tenant, own in budgets.items()
        }

    def raise_to(self, said: Iterable[Used], at: datetime) -> None:
        """No counter stays below what is known elsewhere."""
        now = time.monotonic()
        for each in said:
            [shown] = self.accounts.budgets((each.policy,), now, at)
            if each.used > shown["used"]:
                self.accounts.correct(each.policy, each.used - shown["used"], now, at)
