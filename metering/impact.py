"""What runs, waits and was used, for the warnings of a policy's preview (`tenants.preview`).

Live figures come from the gateways' latest samples; the ledger adds what they do not tell: the last
minute, what recent calls asked for, and budgets that no gateway shows.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Count, Sum
from django.utils import timezone

from metering import selectors
from metering.models import BudgetWindow, UsageRow
from metering.reading import Reading
from tenants.core.warnings import Call, EndpointNow, LaneNow, LiveState, TenantNow

MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)
MOST_NAMED = 400  # of more tenants all are read, and a query stays short


def live_state(tenants: list[str]) -> LiveState:
    """`tenants` are those that a change touches; of others only what runs and waits is told."""
    at = timezone.now()
    samples = selectors.latest_samples(at)
    return LiveState(
        known=bool(samples),
        tenants=_tenants(samples, _last_minute(tenants, at)),
        endpoints=_endpoints(samples),
        lanes=_lanes(samples),
        budgets=_budgets(samples, tenants, at),
        recent=_recent(tenants, at),
    )


def _tenants(
    samples: list[dict[str, Any]], used: Mapping[str, tuple[int, int]]
) -> dict[str, TenantNow]:
    open_now: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for sample in samples:
        for name, state in sample.get("tenants", {}).items():
            open_now[name][0] += state.get("running", 0)
            open_now[name][1] += state.get("queued", 0)
    found = {}
    for name in {*open_now, *used}:
        (running, queued), (requests, tokens) = open_now[name], used.get(name, (0, 0))
        found[name] = TenantNow(running, queued, requests, tokens)
    return found


def _last_minute(tenants: list[str], at: datetime) -> dict[str, tuple[int, int]]:
    """Requests and tokens that the rates counted: what was refused is not among them."""
    if not tenants:
        return {}
    rows = UsageRow.objects.filter(at__gt=at - MINUTE, at__lte=at)
    if len(tenants) <= MOST_NAMED:
        rows = rows.filter(tenant__in=tenants)
    counted = rows.exclude(finish_reason__in=("throttled", "rejected")).values("tenant")
    found = counted.annotate(
        number=Count("id"), tokens=Sum("prompt_tokens") + Sum("completion_tokens")
    )
    return {row["tenant"]: (row["number"], row["tokens"] or 0) for row in found.order_by()}


def _endpoints(samples: list[dict[str, Any]]) -> dict[tuple[str, str], EndpointNow]:
    """One that a gateway cannot reach counts as not available, as on the pools' page."""
    found: dict[tuple[str, str], EndpointNow] = {}
    for sample in samples:
        for model, pool in sample.get("pools", {}).items():
            for url, state in pool.get("endpoints", {}).items():
                known = found.get((model, url), EndpointNow())
                found[model, url] = EndpointNow(
                    known.running + state.get("running", 0),
                    known.available and state.get("available", True),
                )
    return found


def _lanes(samples: list[dict[str, Any]]) -> dict[tuple[str, str], LaneNow]:
    found: dict[tuple[str, str], LaneNow] = {}
    for sample in samples:
        for model, pool in sample.get("pools", {}).items():
            for name, state in pool.get("lanes", {}).items():
                known = found.get((model, name), LaneNow())
                found[model, name] = LaneNow(
                    known.running + state.get("running", 0),
                    known.queued + state.get("queued", 0),
                    max(known.oldest_wait_s, state.get("oldest_wait_s") or 0.0),
                    known.active | _active(state.get("tenants", {})),
                )
    return found


def _active(tenants: Mapping[str, Mapping[str, Any]]) -> frozenset[str]:
    return frozenset(
        name for name, state in tenants.items() if state.get("running") or state.get("queued")
    )


def _budgets(samples: list[dict[str, Any]], tenants: list[str], at: datetime) -> dict[str, float]:
    """Used and reserved, by account. A gateway knows more than the ledger: what is open now."""
    if not tenants:
        return {}
    windows = BudgetWindow.objects.filter(window_start__lte=at, window_end__gt=at)
    found: dict[str, float] = defaultdict(float)
    for account, used in windows.values_list("account", "used"):
        found[account] = max(found[account], used)
    for sample in samples:
        for state in sample.get("tenants", {}).values():
            for budget in state.get("budgets", []):
                account = budget.get("account", "")
                open_now = budget.get("used", 0.0) + budget.get("reserved", 0.0)
                found[account] = max(found[account], open_now)
    return dict(found)


def _recent(tenants: list[str], at: datetime) -> dict[str, dict[Call, int]]:
    if not tenants:
        return {}
    where = {"tenant": tenants} if len(tenants) <= MOST_NAMED else {}
    totals = Reading(at - HOUR, at).totals(("tenant", "application", "model", "lane"), where)
    found: dict[str, dict[Call, int]] = defaultdict(dict)
    for (tenant, application, model, lane), total in totals.items():
        found[tenant][application, model, lane] = total.requests
    return dict(found)
