"""What types cannot see: names that must exist, be unique, or fit together."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tenants.core.document import Budget, Document, Lane, Pool, Tenant, Tier
from tenants.core.effective import allowed_lanes_of, lane_of
from tenants.core.issue import Loc, short

KINDS = ("lanes", "tiers", "pools", "tenants")
TOLERANCE = 1e-9  # ten shares of 0.1 add up to a hair more than 1


class Finding(NamedTuple):
    loc: Loc
    value: Any
    message: str


@dataclass(frozen=True, slots=True)
class Declared:
    """Every name that the data declares, also by objects that are not sound."""

    lanes: frozenset[str]
    tiers: frozenset[str]
    pools: frozenset[str]


@dataclass(slots=True)
class Objects:
    """What there is to check, by list and position. A pruned object lost a bad field, so what
    follows from several of its fields together is not judged."""

    by_kind: dict[str, dict[int, Any]] = field(default_factory=lambda: {k: {} for k in KINDS})
    pruned: set[Loc] = field(default_factory=set)

    @classmethod
    def of(cls, document: Document) -> Objects:
        return cls({kind: dict(enumerate(getattr(document, kind))) for kind in KINDS})


def findings(objects: Objects, declared: Declared) -> list[Finding]:
    given = objects.by_kind
    whole = {t.name: t for i, t in given["tiers"].items() if ("tiers", i) not in objects.pruned}
    return [
        *_lanes(given["lanes"]),
        *_tiers(given["tiers"], whole, declared),
        *_pools(given["pools"]),
        *_tenants(objects, whole, declared),
    ]


def _lanes(lanes: dict[int, Lane]) -> Iterator[Finding]:
    yield from _unique("lane name", ((("lanes", i, "name"), x.name) for i, x in lanes.items()))
    ranks = ((("lanes", i, "rank"), x.rank, f"lane {short(x.name)}") for i, x in lanes.items())
    yield from _unique_among("lane rank", ranks)
    total = sum(lane.reserved_share for lane in lanes.values())
    if total > 1 + TOLERANCE:
        last = max(lanes)
        message = f"reserved_share of all lanes adds up to {total:.6g}; it may be at most 1"
        yield Finding(("lanes", last, "reserved_share"), lanes[last].reserved_share, message)


def _tiers(tiers: dict[int, Tier], whole: dict[str, Tier], declared: Declared) -> Iterator[Finding]:
    yield from _unique("tier name", ((("tiers", i, "name"), x.name) for i, x in tiers.items()))
    for position, tier in tiers.items():
        at: Loc = ("tiers", position)
        yield from _lane_names(at, tier, declared)
        yield from _patterns((*at, "models"), tier.models, declared)
        yield from budget_findings((*at, "budgets"), tier.budgets)
        if tier.name in whole:
            allowed = tier.allowed_lanes or [tier.lane]
            yield from _allowed((*at, "lane"), tier.lane, allowed, declared)


def _pools(pools: dict[int, Pool]) -> Iterator[Finding]:
    owners = {position: f"pool {short(pool.model)}" for position, pool in pools.items()}
    names: list[tuple[Loc, Hashable, str]] = [
        (("pools", i, "model"), pool.model, owners[i]) for i, pool in pools.items()
    ]
    for position, pool in pools.items():
        at: Loc = ("pools", position)
        aliases = enumerate(pool.aliases)
        names += [((*at, "aliases", i), alias, owners[position]) for i, alias in aliases]
        urls = (((*at, "endpoints", i, "url"), e.url) for i, e in enumerate(pool.endpoints))
        yield from _unique("endpoint url", urls)
    yield from _unique_among("model or alias", names)


def _tenants(objects: Objects, tiers: dict[str, Tier], declared: Declared) -> Iterator[Finding]:
    tenants: dict[int, Tenant] = objects.by_kind["tenants"]
    yield from _unique(
        "tenant name", ((("tenants", i, "name"), x.name) for i, x in tenants.items())
    )
    for position, tenant in tenants.items():
        at: Loc = ("tenants", position)
        yield from _known((*at, "tier"), "tier", tenant.tier, declared.tiers)
        yield from _lane_names(at, tenant, declared)
        yield from _patterns((*at, "models"), tenant.models or [], declared)
        yield from budget_findings((*at, "budgets"), tenant.budgets)
        tier = None if at in objects.pruned else tiers.get(tenant.tier)
        yield from _applications(at, tenant, tier, declared)


def _applications(
    at: Loc, tenant: Tenant, tier: Tier | None, declared: Declared
) -> Iterator[Finding]:
    inside = list(enumerate(tenant.applications))
    names = (((*at, "applications", i, "name"), application.name) for i, application in inside)
    yield from _unique("application name", names)
    allowed = allowed_lanes_of(tenant, tier) if tier else None
    if tier and allowed and (tenant.lane or tenant.allowed_lanes):
        field = "lane" if tenant.lane else "allowed_lanes"
        yield from _allowed((*at, field), lane_of(tenant, tier), allowed, declared)
    for position, application in inside:
        place: Loc = (*at, "applications", position)
        yield from budget_findings((*place, "budgets"), application.budgets)
        if application.lane is not None:
            yield from _known((*place, "lane"), "lane", application.lane, declared.lanes)
            if allowed:
                yield from _allowed((*place, "lane"), application.lane, allowed, declared)


def _lane_names(at: Loc, owner: Tier | Tenant, declared: Declared) -> Iterator[Finding]:
    if owner.lane is not None:
        yield from _known((*at, "lane"), "lane", owner.lane, declared.lanes)
    places = [((*at, "allowed_lanes", i), name) for i, name in enumerate(owner.allowed_lanes or [])]
    yield from _unique("allowed lane", places)
    for loc, name in places:
        yield from _known(loc, "lane", name, declared.lanes)


def _patterns(at: Loc, patterns: list[str], declared: Declared) -> Iterator[Finding]:
    for position, pattern in enumerate(patterns):
        if "*" not in pattern and "?" not in pattern:
            yield from _known((*at, position), "pool", pattern, declared.pools)


def budget_findings(at: Loc, budgets: list[Budget]) -> Iterator[Finding]:
    names = (((*at, i, "name"), budget.name) for i, budget in enumerate(budgets))
    yield from _unique("budget name", names)


def _allowed(loc: Loc, lane: str, allowed: list[str], declared: Declared) -> Iterator[Finding]:
    if lane in declared.lanes and lane not in allowed:
        message = f"lane {short(lane)} is not among the allowed_lanes: {', '.join(allowed)}"
        yield Finding(loc, lane, message)


def _known(loc: Loc, what: str, name: str, names: frozenset[str]) -> Iterator[Finding]:
    if name not in names:
        some = ", ".join(sorted(names)[:20]) or "none is defined"
        yield Finding(loc, name, f"there is no {what} {short(name)}; known: {some}")


def _unique(what: str, values: Iterable[tuple[Loc, Hashable]]) -> Iterator[Finding]:
    """Among what one owner has: the finding's place names it."""
    yield from _unique_among(what, ((loc, value, "") for loc, value in values))


def _unique_among(what: str, values: Iterable[tuple[Loc, Hashable, str]]) -> Iterator[Finding]:
    """Each value with its owner, as in `lane 'batch'`: both owners are named."""
    seen: dict[Hashable, str] = {}
    for loc, value, owner in values:
        if value in seen:
            by = f", by {' and '.join(dict.fromkeys((seen[value], owner)))}" if owner else ""
            yield Finding(
                loc, value, f"{what} {short(value)} is given twice{by}; it must be unique"
            )
        seen.setdefault(value, owner)
