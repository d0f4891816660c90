"""Pages that join policy with usage and live state."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.utils.cache import patch_vary_headers
from django_htmx.middleware import HtmxDetails

from metering import selectors
from metering.dashboards import assets, errors, live, ranges
from metering.dashboards.overview import overview as overview_of
from metering.dashboards.usage import usage as usage_of
from tenants import selectors as policy
from tenants.core.diff import named
from tenants.core.document import Document, Tenant, Tier
from tenants.core.effective import budgets_of, lane_of, weight_of
from tenants.gate import viewer

MOST_ROWS = 300
SHOWN_WINDOWS = 4
HOUR = timedelta(hours=1)


def is_refresh(request: HttpRequest) -> bool:
    details: HtmxDetails = request.htmx  # type: ignore[attr-defined]
    return bool(details)


def overview(request: HttpRequest) -> HttpResponse:
    chosen = ranges.chosen(request.GET.get("range"))
    context = overview_of(timezone.now(), chosen, weights(policy.current_document()))
    template = "metering/overview_live.html" if is_refresh(request) else "metering/overview.html"
    response = render(request, template, context | chart_page())
    patch_vary_headers(response, ["HX-Request"])  # else "back" may show the part as the page
    return response


def chart_page() -> dict[str, Any]:
    return {"ranges": ranges.RANGES.values(), "plotly_js": assets.address()}


def weights(document: Document) -> dict[str, float]:
    tiers = {tier.name: tier for tier in document.tiers}
    return {each.name: weight_of(each, tiers[each.tier]) for each in document.tenants}


def tenants(request: HttpRequest) -> HttpResponse:
    document = policy.current_document()
    asked = {name: request.GET.get(name, "").strip() for name in ("q", "tier", "status")}
    found = [each for each in document.tenants if fits(each, asked)]
    now = live.combine(selectors.latest_samples())
    tiers = {tier.name: tier for tier in document.tiers}
    shown = sorted(found, key=lambda each: each.name)[:MOST_ROWS]
    context = {
        "rows": [tenant_row(each, tiers[each.tier], now) for each in shown],
        "tiers": list(tiers),
        "total": len(document.tenants),
        "more": len(found) > MOST_ROWS,
        **asked,
    }
    return render(request, "metering/tenants.html", context)


def fits(tenant: Tenant, asked: dict[str, str]) -> bool:
    query = asked["q"].lower()
    names = [tenant.name, *(each.name for each in tenant.applications)]
    return (
        (not query or any(query in name.lower() for name in names))
        and asked["tier"] in ("", tenant.tier)
        and asked["status"] in ("", "enabled" if tenant.enabled else "suspended")
    )


def tenant_row(tenant: Tenant, tier: Tier, now: live.Live) -> dict[str, Any]:
    return {
        "name": tenant.name,
        "enabled": tenant.enabled,
        "tier": tier.name,
        "weight": weight_of(tenant, tier),
        "own_weight": tenant.weight is not None,
        "lane": lane_of(tenant, tier),
        "applications": [each.name for each in tenant.applications],
        "standing": now.tenants.get(tenant.name),
    }


def tenant(request: HttpRequest, name: str) -> HttpResponse:
    document = policy.current_document()
    found = named(document, "tenant").get(name)
    if not isinstance(found, Tenant):
        raise Http404
    context: dict[str, Any] = {
        "tenant": found,
        "effective": effective_rows(name),
        "windows": past_windows(found, document),
        "keys": policy.keys(name)[:50],
        "key_editor": viewer(request).can_for("keys.edit", name),
        "records": selectors.recent_records(name, 25),
    }
    return render(request, "metering/tenant.html", context | now_of(name) | chart_page())


def past_windows(tenant: Tenant, document: Document) -> list[dict[str, Any]]:
    """What its sustained budgets and its applications' used, window by window, newest first."""
    tier = next(each for each in document.tiers if each.name == tenant.tier)
    owned = [("", f"tenant:{tenant.name}", budgets_of(tenant, tier))]
    for each in tenant.applications:
        owned.append((each.name, f"application:{tenant.name}/{each.name}", each.budgets))
    return [
        {"application": application, "budget": budget, "windows": windows}
        for application, owner, budgets in owned
        for budget in budgets
        if (windows := selectors.budget_history(f"{owner}/{budget.name}", SHOWN_WINDOWS))
    ]


def tenant_live(request: HttpRequest, name: str) -> HttpResponse:
    return render(request, "metering/tenant_live.html", now_of(name))


def now_of(name: str) -> dict[str, Any]:
    at = timezone.now()
    now = live.combine(selectors.latest_samples(at))
    shares = selectors.breakdown("tenant", at - HOUR, at, tenant=name)
    return {
        "live_known": bool(now.gateways),
        "standing": now.tenants.get(name) or live.Standing(),
        "share": shares[0] if shares else None,
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


def budget_text(budget: dict[str, Any]) -> str:
    if budget["kind"] == "burst":
        return f"{budget['cost']:,.12g} units, refills {budget['refill_per_second']:,.12g} a second"
    return f"{budget['cost']:,.12g} units per {budget['period']}, then {budget['on_exhausted']}"


def pools(request: HttpRequest) -> HttpResponse:
    now = live.combine(selectors.latest_samples())
    states = {
        (pool["model"], endpoint["url"]): endpoint
        for pool in now.pools
        for endpoint in pool["endpoints"]
    }
    rows = [
        (pool, [(each, states.get((pool.model, each.url))) for each in pool.endpoints])
        for pool in policy.current_document().pools
    ]
    context = {"rows": rows, "live": now, "at": timezone.now()}
    context["errors"] = errors.rows()
    return render(request, "metering/pools.html", context)


def usage(request: HttpRequest) -> HttpResponse:
    """A tenant's people see their own tenant, whatever the address says."""
    who, document = viewer(request), policy.current_document()
    names = [] if who.confined else [each.name for each in document.tenants]
    name = who.tenant if who.confined else request.GET.get("tenant") or next(iter(names), "")
    chosen = ranges.chosen(request.GET.get("range"), "24h")
    context = usage_of(name or "", timezone.now(), chosen) if name else {}
    context |= {"name": name, "names": names, "range": chosen, "query": f"tenant={name}"}
    context |= {"keys": policy.keys(name)[:50], "hide_tenant": True, "confined": who.confined}
    return render(request, "metering/usage.html", context | chart_page())
