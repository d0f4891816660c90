"""Pages of tenants: the list, one tenant, and its live part."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.core.paginator import Paginator
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone

from metering import selectors
from metering.dashboards import assets, budgets, live
from tenants import selectors as policy
from tenants.core.diff import named
from tenants.core.document import Document, Tenant, Tier
from tenants.core.effective import lane_of, tier_of, weight_of
from tenants.core.shown import budget_text
from tenants.gate import viewer

PAGE = 50
SHOWN_WINDOWS = 4
SHOWN_KEYS = 20
SHOWN_MEMBERS = 20
SHOWN_RECORDS = 25
HOUR = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Row:
    """One tenant of the list. What only a gateway knows is None where none tells of it."""

    name: str
    enabled: bool
    tier: str
    weight: float
    own_weight: bool
    lane: str
    lanes: frozenset[str]
    applications: tuple[str, ...]
    running: int | None
    queued: int | None
    debt: float | None
    tokens: int
    throttled: int
    over_budget: bool


STATES: Mapping[str, Callable[[Row], bool]] = {
    "enabled": lambda row: row.enabled,
    "suspended": lambda row: not row.enabled,
    "waiting": lambda row: bool(row.queued),
    "throttled": lambda row: row.throttled > 0,
    "over budget": lambda row: row.over_budget,
}
SORTS: Mapping[str, Callable[[Row], Any]] = {
    "name": lambda row: row.name,
    "weight": lambda row: row.weight,
    "running": lambda row: row.running,
    "queued": lambda row: row.queued,
    "debt": lambda row: row.debt,
    "tokens": lambda row: row.tokens,
    "throttled": lambda row: row.throttled,
}


@dataclass(frozen=True, slots=True)
class Asked:
    """What the address asks the list for; what it cannot mean is as if it were not asked."""

    q: str
    tier: str
    lane: str
    state: str
    sort: str
    down: bool

    @classmethod
    def of(cls, request: HttpRequest) -> Asked:
        given = {name: request.GET.get(name, "").strip() for name in ("q", "tier", "lane", "state")}
        if given["state"] not in STATES:
            given["state"] = ""
        sort = request.GET.get("sort", "name")
        key = sort.removeprefix("-")
        return cls(**given, sort=key if key in SORTS else "name", down=sort.startswith("-"))

    @property
    def filtered(self) -> bool:
        return bool(self.q or self.tier or self.lane or self.state)

    def fits(self, row: Row) -> bool:
        names = (row.name, *row.applications)
        return (
            (not self.q or any(self.q.lower() in name for name in names))
            and self.tier in ("", row.tier)
            and (not self.lane or self.lane in row.lanes)
            and (not self.state or STATES[self.state](row))
        )

    def sorted(self, rows: list[Row]) -> list[Row]:
        """Whoever has no figure comes last in either direction; the name decides between equals."""
        key = SORTS[self.sort]
        known = [row for row in rows if key(row) is not None]
        unknown = [row for row in rows if key(row) is None]
        by_name = sorted(known, key=lambda row: row.name)
        return sorted(by_name, key=key, reverse=self.down) + unknown


def tenants(request: HttpRequest) -> HttpResponse:
    document, asked = policy.current_document(), Asked.of(request)
    rows = [row for row in rows_of(document, timezone.now()) if asked.fits(row)]
    context = {
        "page": Paginator(asked.sorted(rows), PAGE).get_page(request.GET.get("page")),
        "asked": asked,
        "columns": columns(asked),
        "tiers": [tier.name for tier in document.tiers],
        "lanes": [lane.name for lane in document.lanes],
        "states": STATES,
        "total": len(document.tenants),
    }
    return render(request, "metering/tenants.html", context)


# field to sort by ("" where it cannot be), heading, whether it is a number
COLUMNS = (
    ("name", "Tenant", False),
    ("", "State", False),
    ("", "Tier", False),
    ("weight", "Weight", True),
    ("", "Lane", False),
    ("", "Applications", True),
    ("running", "Running", True),
    ("queued", "Queued", True),
    ("debt", "Debt", True),
    ("tokens", "Tokens, 1 h", True),
    ("throttled", "Throttled, 1 h", True),
)


def columns(asked: Asked) -> list[dict[str, Any]]:
    """Each heading with what to sort by where it is followed: numbers first from the largest
    down."""
    return [
        {
            "label": label,
            "number": number,
            "sort": turned(asked, field, number) if field else "",
            "order": ("descending" if asked.down else "ascending") if asked.sort == field else "",
        }
        for field, label, number in COLUMNS
    ]


def turned(asked: Asked, field: str, number: bool) -> str:
    down = not asked.down if asked.sort == field else number
    return f"-{field}" if down else field


def rows_of(document: Document, at: datetime) -> list[Row]:
    """Every tenant: live state, the last hour and the budgets that are used up are one or two
    queries each, whatever the number of tenants."""
    now = live.combine(selectors.latest_samples(at))
    hour = {share.name: share for share in selectors.breakdown("tenant", at - HOUR, at)}
    over = budgets.used_up(document, at)
    tiers = {tier.name: tier for tier in document.tiers}
    return [
        row_of(each, tiers[each.tier], now, hour.get(each.name), each.name in over)
        for each in document.tenants
    ]


def row_of(
    tenant: Tenant, tier: Tier, now: live.Live, hour: selectors.Share | None, over: bool
) -> Row:
    idle = live.Standing() if now.gateways else None
    standing = now.tenants.get(tenant.name, idle)
    lane = lane_of(tenant, tier)
    told = standing.budgets if standing else []
    own = [each for each in told if each["account"].startswith("tenant:")]
    return Row(
        name=tenant.name,
        enabled=tenant.enabled,
        tier=tier.name,
        weight=weight_of(tenant, tier),
        own_weight=tenant.weight is not None,
        lane=lane,
        lanes=frozenset([lane, *(each.lane for each in tenant.applications if each.lane)]),
        applications=tuple(each.name for each in tenant.applications),
        running=standing.running if standing else None,
        queued=standing.queued if standing else None,
        debt=standing.debt if standing else None,
        tokens=hour.tokens if hour else 0,
        throttled=hour.throttled if hour else 0,
        over_budget=over or any(budget["remaining"] <= 0 for budget in own),
    )


def tenant(request: HttpRequest, name: str) -> HttpResponse:
    found, tier, _ = of_policy(name)
    context: dict[str, Any] = {
        "tenant": found,
        "applications": [
            {"part": each, "lane": each.lane or lane_of(found, tier)} for each in found.applications
        ],
        "effective": effective_rows(name),
        "keys": policy.keys(name).filter(revoked_at=None)[:SHOWN_KEYS],
        "members": policy.members(name)[:SHOWN_MEMBERS],
        "key_editor": viewer(request).can_for("keys.edit", name),
        "records": selectors.recent_records(name, SHOWN_RECORDS),
        "plotly_js": assets.address(),
    }
    return render(request, "metering/tenant.html", context | now_of(name))


def tenant_live(request: HttpRequest, name: str) -> HttpResponse:
    return render(request, "metering/tenant_live.html", now_of(name))


def of_policy(name: str) -> tuple[Tenant, Tier, Document]:
    document = policy.current_document()
    found = named(document, "tenant").get(name)
    if not isinstance(found, Tenant):
        raise Http404
    return found, tier_of(found, document), document


def now_of(name: str) -> dict[str, Any]:
    found, tier, _ = of_policy(name)
    at = timezone.now()
    samples = selectors.latest_samples(at)
    now = live.combine(samples)
    shares = selectors.breakdown("tenant", at - HOUR, at, tenant=name)
    standing = now.tenants.get(name) or live.Standing()
    owned = budgets.owned_by(found, tier)
    owned += budgets.owned_by_keys(policy.key_budgets(name))
    windows = budgets.newest_windows(owned, SHOWN_WINDOWS, at)
    return {
        "live_known": bool(now.gateways),
        "standing": standing,
        "places": live.places(samples, name),
        "share": shares[0] if shares else None,
        "budgets": budgets.left(owned, standing.budgets, windows, found.zone, at),
        "any_past": bool(windows),
    }


LABELS = {
    "weight": "Weight",
    "lane": "Lane",
    "allowed_lanes": "Allowed lanes",
    "models": "Models",
    "on_overload": "When overloaded",
    "soft_limits": "Soft limits",
    "timezone": "Time zone",
    "enabled": "Enabled",
    "limits.requests_per_minute": "Requests a minute",
    "limits.tokens_per_minute": "Tokens a minute",
    "limits.max_running": "Running at once",
    "limits.max_queued": "Queued at once",
    "limits.max_input_tokens": "Input tokens",
    "limits.max_output_tokens": "Output tokens",
}


def effective_rows(name: str) -> list[dict[str, str]]:
    return [
        {
            "label": LABELS.get(field, field.replace("budgets.", "Budget ")),
            "value": value_text(field, value),
            "origin": origin,
        }
        for field, (value, origin) in policy.effective_policy(name).items()
    ]


def value_text(field: str, value: Any) -> str:
    if value is None:
        return "unlimited"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(value) or "none"
    if isinstance(value, dict):
        return budget_text(value)
    return f"{value:,.12g}" if isinstance(value, int | float) else str(value)
