"""The document as rows, brought up to date in the transaction that stores its revision.

1. Rows are matched by name and only those that differ are written.
2. What left the document is deleted, but for tenants and applications: they keep their row with
   `in_policy=False`, without policy of their own, because keys and members hang on it.
3. A key's budgets are not the document's and are never touched.
"""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal
from typing import Any

from django.db.models import F, Model

from tenants.core import document as doc
from tenants.core.compile import engine_priority
from tenants.core.document import Document
from tenants.core.effective import LIMITS
from tenants.models import Application, Budget, Endpoint, Lane, Pool, Tenant, Tier

PARKED = 1_000_000  # past every rank a document can have
Row = dict[str, Any]


def project(document: Document) -> None:
    _park_ranks(document)
    lanes = _sync(Lane, ["name"], map(_lane, document.lanes))
    tiers = _sync(Tier, ["name"], (_tier(tier, lanes) for tier in document.tiers))
    pools = _sync(Pool, ["model"], map(_pool, document.pools))
    tenants = _sync(Tenant, ["name"], (_tenant(item, tiers, lanes) for item in document.tenants))
    applications = _sync(
        Application,
        ["tenant_id", "name"],
        (
            _application(item, tenants[tenant.name,], lanes)
            for tenant in document.tenants
            for item in tenant.applications
        ),
    )
    endpoints = _sync(Endpoint, ["pool_id", "url"], _endpoints(document, pools))
    budgets = _sync(Budget, BUDGET_KEY, _budgets(document, tiers, tenants, applications))
    _remove(lanes, tiers, pools, tenants, applications, endpoints, budgets)


Rows = dict[tuple[Any, ...], Any]
BUDGET_KEY = ["tier_id", "tenant_id", "application_id", "name"]


def _sync(model: type[Model], key: list[str], wanted: Iterable[Row]) -> Rows:
    """Rows as wanted, by key; those of other keys are left for `_remove`."""
    existing = {_key(row, key): row for row in model._default_manager.all()}
    result: Rows = {}
    made, changed, fields = [], [], set[str]()
    for values in wanted:
        name = tuple(values.get(part) for part in key)
        row = existing.get(name)
        if row is None:
            row = model(**values)
            made.append(row)
        elif differing := [k for k, value in values.items() if getattr(row, k) != value]:
            for field in differing:
                setattr(row, field, values[field])
            fields.update(differing)
            changed.append(row)
        result[name] = row
    model._default_manager.bulk_create(made, batch_size=500)
    if changed:
        model._default_manager.bulk_update(changed, sorted(fields), batch_size=200)
    return result


def _key(row: Model, key: list[str]) -> tuple[Any, ...]:
    return tuple(getattr(row, part) for part in key)


def _park_ranks(document: Document) -> None:
    """Ranks are unique at every moment, so lanes that trade ranks step aside first."""
    stays = {lane.name: lane.rank for lane in document.lanes}
    moving = [lane.pk for lane in Lane.objects.all() if stays.get(lane.name) != lane.rank]
    Lane.objects.filter(pk__in=moving).update(rank=F("rank") + PARKED)


def _remove(
    lanes: Rows,
    tiers: Rows,
    pools: Rows,
    tenants: Rows,
    applications: Rows,
    endpoints: Rows,
    budgets: Rows,
) -> None:
    """In an order in which nothing that is still referred to goes."""
    Budget.objects.filter(key__isnull=True).exclude(pk__in=_pks(budgets)).delete()
    Application.objects.filter(in_policy=True).exclude(pk__in=_pks(applications)).update(
        in_policy=False, lane=None
    )
    left = {"in_policy": False, "tier": None, "lane": None, "weight": None, "on_overload": ""}
    lists = {"allowed_lanes": None, "model_patterns": None, "soft_limits": None}
    Tenant.objects.filter(in_policy=True).exclude(pk__in=_pks(tenants)).update(
        **left, **lists, **dict.fromkeys(LIMITS)
    )
    Tier.objects.exclude(pk__in=_pks(tiers)).delete()
    Lane.objects.exclude(pk__in=_pks(lanes)).delete()
    Endpoint.objects.exclude(pk__in=_pks(endpoints)).delete()
    Pool.objects.exclude(pk__in=_pks(pools)).delete()


def _pks(rows: Rows) -> list[int]:
    return [row.pk for row in rows.values()]


def _lane(lane: doc.Lane) -> Row:
    return {**lane.model_dump(), "engine_priority": engine_priority(lane)}


def _tier(tier: doc.Tier, lanes: Rows) -> Row:
    return {
        "name": tier.name,
        "weight": tier.weight,
        "lane_id": lanes[tier.lane,].pk,
        "allowed_lanes": tier.allowed_lanes or [tier.lane],
        "model_patterns": tier.models,
        "on_overload": tier.on_overload,
        "soft_limits": tier.soft_limits,
        **tier.limits.model_dump(),
    }


def _pool(pool: doc.Pool) -> Row:
    capacity = doc.Capacity() if pool.capacity == "auto" else pool.capacity
    price = pool.price
    return {
        "model": pool.model,
        "aliases": pool.aliases,
        "engine": pool.engine,
        "capacity_auto": pool.capacity == "auto",
        **capacity.model_dump(),
        **{f"cost_{name}": value for name, value in pool.cost.model_dump().items()},
        "price_currency": price.currency if price else "",
        "price_input_per_million": Decimal(price.input_per_million) if price else None,
        "price_output_per_million": Decimal(price.output_per_million) if price else None,
        "tokenizer_kind": pool.tokenizer.kind,
        "tokenizer_path": pool.tokenizer.path or "",
        "api_key_env": pool.api_key_env or "",
        "isolate_prefix_cache": pool.isolate_prefix_cache,
        "locality_quantum": pool.locality_quantum,
        "timeouts": pool.timeouts.model_dump(),
    }


def _endpoints(document: Document, pools: Rows) -> Iterable[Row]:
    for pool in document.pools:
        for position, endpoint in enumerate(pool.endpoints):
            place = {"pool_id": pools[pool.model,].pk, "position": position}
            yield {**place, **endpoint.model_dump()}


def _tenant(tenant: doc.Tenant, tiers: Rows, lanes: Rows) -> Row:
    return {
        "name": tenant.name,
        "in_policy": True,
        "enabled": tenant.enabled,
        "timezone": tenant.timezone,
        "tier_id": tiers[tenant.tier,].pk,
        "weight": tenant.weight,
        "lane_id": lanes[tenant.lane,].pk if tenant.lane else None,
        "allowed_lanes": tenant.allowed_lanes,
        "model_patterns": tenant.models,
        "on_overload": tenant.on_overload or "",
        "soft_limits": tenant.soft_limits,
        **tenant.limits.model_dump(),
    }


def _application(application: doc.Application, tenant: Tenant, lanes: Rows) -> Row:
    return {
        "tenant_id": tenant.pk,
        "name": application.name,
        "in_policy": True,
        "lane_id": lanes[application.lane,].pk if application.lane else None,
        "weight": application.weight,
    }


def _budgets(document: Document, tiers: Rows, tenants: Rows, applications: Rows) -> Iterable[Row]:
    for tier in document.tiers:
        for budget in tier.budgets:
            yield budget_row(budget, tier_id=tiers[tier.name,].pk)
    for tenant in document.tenants:
        owner = tenants[tenant.name,].pk
        for budget in tenant.budgets:
            yield budget_row(budget, tenant_id=owner)
        for application in tenant.applications:
            for budget in application.budgets:
                row = applications[owner, application.name]
                yield budget_row(budget, application_id=row.pk)


def budget_row(budget: doc.Budget, **owner: int) -> Row:
    return {**budget.model_dump(), "period": budget.period or "", **owner}
