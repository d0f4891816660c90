"""What a tenant's policy comes to once its tier's values are filled in.

1. A tenant's own value wins; without one the tier's holds; without that, the default.
2. Limits merge field by field, budgets by name, lists are replaced whole.
3. Without `allowed_lanes` only the default lane is allowed: more is granted, never assumed.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Any, Literal

from tenants.core.document import Budget, Document, Limits, Tenant, Tier
from tenants.core.snapshot import SoftLimit

Origin = Literal["tenant", "tier", "default"]
LIMITS = tuple(Limits.model_fields)


def tier_of(tenant: Tenant, document: Document) -> Tier:
    return next(tier for tier in document.tiers if tier.name == tenant.tier)


def weight_of(tenant: Tenant, tier: Tier) -> float:
    return tier.weight if tenant.weight is None else tenant.weight


def lane_of(tenant: Tenant, tier: Tier) -> str:
    return tenant.lane or tier.lane


def allowed_lanes_of(tenant: Tenant, tier: Tier) -> list[str]:
    return tenant.allowed_lanes or tier.allowed_lanes or [lane_of(tenant, tier)]


def patterns_of(tenant: Tenant, tier: Tier) -> list[str]:
    return tier.models if tenant.models is None else tenant.models


def limits_of(tenant: Tenant, tier: Tier) -> dict[str, int | None]:
    own = {name: getattr(tenant.limits, name) for name in LIMITS}
    return {
        name: getattr(tier.limits, name) if value is None else value for name, value in own.items()
    }


def soft_limits_of(tenant: Tenant, tier: Tier) -> list[SoftLimit]:
    return tier.soft_limits if tenant.soft_limits is None else tenant.soft_limits


def budgets_of(tenant: Tenant, tier: Tier) -> list[Budget]:
    """In the tier's order, then those that only the tenant has."""
    merged = {budget.name: budget for budget in (*tier.budgets, *tenant.budgets)}
    return list(merged.values())


def matching(patterns: list[str], models: list[str]) -> frozenset[str]:
    if "*" in patterns:
        return frozenset(models)
    return frozenset(m for m in models if any(fnmatchcase(m, pattern) for pattern in patterns))


def names_for(tenant: Tenant, document: Document) -> list[str]:
    """What it may put into `model`: of each pool that it may use the model and its aliases, in the
    document's order."""
    patterns = patterns_of(tenant, tier_of(tenant, document))
    allowed = matching(patterns, [pool.model for pool in document.pools])
    pools = [pool for pool in document.pools if pool.model in allowed]
    return [name for pool in pools for name in (pool.model, *pool.aliases)]


def origins(tenant: Tenant, tier: Tier) -> dict[str, tuple[Any, Origin]]:
    """Effective values by field (`limits.max_running`, `budgets.hourly`), each with its source."""
    said = tier.model_fields_set
    found: dict[str, tuple[Any, Origin]] = {}

    def note(field: str, value: Any, own: bool, given: bool) -> None:
        found[field] = (value, "tenant" if own else "tier" if given else "default")

    note("weight", weight_of(tenant, tier), tenant.weight is not None, "weight" in said)
    note("lane", lane_of(tenant, tier), tenant.lane is not None, True)
    note(
        "allowed_lanes",
        allowed_lanes_of(tenant, tier),
        tenant.allowed_lanes is not None,
        tier.allowed_lanes is not None,
    )
    note("models", patterns_of(tenant, tier), tenant.models is not None, "models" in said)
    overload = tenant.on_overload or tier.on_overload
    note("on_overload", overload, tenant.on_overload is not None, "on_overload" in said)
    soft = tenant.soft_limits is not None
    note("soft_limits", soft_limits_of(tenant, tier), soft, "soft_limits" in said)
    for name, value in limits_of(tenant, tier).items():
        own, given = (getattr(part.limits, name) is not None for part in (tenant, tier))
        note(f"limits.{name}", value, own, given)
    for budget in budgets_of(tenant, tier):
        own = budget in tenant.budgets
        note(f"budgets.{budget.name}", budget.model_dump(exclude_none=True), own, True)
    note("timezone", tenant.timezone, tenant.timezone != "UTC", False)
    note("enabled", tenant.enabled, not tenant.enabled, False)
    return found
