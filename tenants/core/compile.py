"""From a validated document and its keys to the snapshot that a gateway works from.

1. Everything inherited is resolved here, once, so that no request pays for it.
2. A budget's account names its owner: `tenant:acme/hourly`, `application:acme/bot/hourly`,
   `key:<id>/hourly`. A tier's budgets become one account for each of its tenants.
3. A key whose tenant or application is not in the document is left out: it opens nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType

from tenants.core import snapshot as out
from tenants.core.document import Application, Budget, Document, Lane, Pool, Tenant, Tier
from tenants.core.effective import (
    allowed_lanes_of,
    budgets_of,
    lane_of,
    limits_of,
    matching,
    patterns_of,
    soft_limits_of,
    weight_of,
)


@dataclass(frozen=True, slots=True)
class KeyGrant:
    """One accepted secret of one key, as stored."""

    id: str
    tenant: str
    application: str
    digest: bytes
    expires_at: datetime | None = None
    budgets: tuple[Budget, ...] = ()


def compile_snapshot(
    document: Document, keys: Iterable[KeyGrant], revision: int, version: int
) -> out.PolicySnapshot:
    lanes = tuple(_lane(lane) for lane in sorted(document.lanes, key=lambda lane: lane.rank))
    pools = {pool.model: _pool(pool) for pool in document.pools}
    aliases = {alias: pool for pool in pools.values() for alias in pool.aliases}
    tenants = _tenants(document, lanes, list(pools))
    return out.PolicySnapshot(
        revision=revision,
        version=version,
        lanes=lanes,
        pools=MappingProxyType(pools),
        models=MappingProxyType({**aliases, **pools}),
        tenants=MappingProxyType(tenants),
        keys=MappingProxyType(_keys(keys, tenants)),
        lanes_by_name=MappingProxyType({lane.name: lane for lane in lanes}),
    )


def engine_priority(lane: Lane) -> int:
    """Lower is served first; ten apart, so that a lane fits between two others later."""
    return lane.rank * 10 if lane.engine_priority is None else lane.engine_priority


def _lane(lane: Lane) -> out.LanePolicy:
    return out.LanePolicy(
        name=lane.name,
        rank=lane.rank,
        engine_priority=engine_priority(lane),
        reserved_share=lane.reserved_share,
        ceiling=lane.ceiling,
        max_queue_seconds=lane.max_queue_seconds,
    )


def _pool(pool: Pool) -> out.PoolPolicy:
    given = pool.capacity
    capacity = out.Capacity(auto=True) if given == "auto" else out.Capacity(**given.model_dump())
    return out.PoolPolicy(
        model=pool.model,
        aliases=tuple(pool.aliases),
        endpoints=tuple(out.EndpointPolicy(item.url, item.drain) for item in pool.endpoints),
        capacity=capacity,
        cost=out.Cost(**pool.cost.model_dump()),
        price=out.Price(**pool.price.model_dump()) if pool.price else None,
        tokenizer=out.Tokenizer(pool.tokenizer.kind, pool.tokenizer.path or ""),
        api_key_env=pool.api_key_env,
        engine=pool.engine,
        isolate_prefix_cache=pool.isolate_prefix_cache,
        locality_quantum=pool.locality_quantum,
        timeouts=out.Timeouts(**pool.timeouts.model_dump()),
    )


def _tenants(
    document: Document, lanes: tuple[out.LanePolicy, ...], models: list[str]
) -> dict[str, out.TenantPolicy]:
    tiers = {tier.name: tier for tier in document.tiers}
    ranks = {lane.name: lane.rank for lane in lanes}
    return {t.name: _tenant(t, tiers[t.tier], ranks, models) for t in document.tenants}


def _tenant(
    tenant: Tenant, tier: Tier, ranks: Mapping[str, int], models: list[str]
) -> out.TenantPolicy:
    lane = lane_of(tenant, tier)
    applications = {a.name: _application(a, tenant, lane) for a in tenant.applications}
    return out.TenantPolicy(
        name=tenant.name,
        tier=tier.name,
        weight=weight_of(tenant, tier),
        lane=lane,
        allowed_lanes=tuple(sorted(allowed_lanes_of(tenant, tier), key=ranks.__getitem__)),
        limits=out.Limits(**limits_of(tenant, tier)),
        budgets=_budgets(f"tenant:{tenant.name}", budgets_of(tenant, tier), tenant.zone),
        models=matching(patterns_of(tenant, tier), models),
        on_overload=tenant.on_overload or tier.on_overload,
        soft_limits=frozenset(soft_limits_of(tenant, tier)),
        timezone=tenant.zone,
        enabled=tenant.enabled,
        applications=MappingProxyType(applications),
    )


def _application(application: Application, tenant: Tenant, lane: str) -> out.ApplicationPolicy:
    owner = f"application:{tenant.name}/{application.name}"
    return out.ApplicationPolicy(
        name=application.name,
        lane=application.lane or lane,
        weight=application.weight,
        budgets=_budgets(owner, application.budgets, tenant.zone),
    )


def _budgets(owner: str, budgets: Iterable[Budget], timezone: str) -> tuple[out.BudgetPolicy, ...]:
    return tuple(
        out.BudgetPolicy(
            account=f"{owner}/{budget.name}",
            name=budget.name,
            kind=budget.kind,
            cost=budget.cost,
            refill_per_second=budget.refill_per_second or 0.0,
            period=budget.period,
            timezone=timezone,
            on_exhausted=budget.on_exhausted,
        )
        for budget in budgets
    )


def _keys(
    keys: Iterable[KeyGrant], tenants: Mapping[str, out.TenantPolicy]
) -> dict[bytes, out.KeyPolicy]:
    accepted: dict[bytes, out.KeyPolicy] = {}
    for key in keys:
        tenant = tenants.get(key.tenant)
        if tenant is None or (key.application and key.application not in tenant.applications):
            continue
        budgets = _budgets(f"key:{key.id}", key.budgets, tenant.timezone)
        accepted[key.digest] = out.KeyPolicy(
            key.id, key.tenant, key.application, key.expires_at, budgets
        )
    return accepted
