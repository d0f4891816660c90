"""The usage page: a tenant's own, or for operators any tenant's."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.utils import timezone

from metering import selectors
from metering.dashboards import assets, charts, own, ranges
from metering.dashboards.boards import unknown
from metering.dashboards.usage import usage as usage_of
from tenants import selectors as policy
from tenants.gate import Viewer, viewer

SHOWN_KEYS = 50


def usage(request: HttpRequest) -> HttpResponse:
    """A tenant's people see their own tenant, whatever the address says."""
    absolute = ranges.canonical(request.GET)
    if absolute:
        return HttpResponseRedirect(f"{request.path}?{ranges.replaced(request.GET, absolute)}")
    who, document, at = viewer(request), policy.current_document(), timezone.now()
    names = [] if who.confined else [each.name for each in document.tenants]
    asked = request.GET.get("request", "").strip()
    name = whose(who, request.GET.get("tenant", ""), asked) or next(iter(names), "")
    span = ranges.chosen(request.GET, at, "24h")
    context = usage_of(name, document, span, at) if name else {}
    wanted = request.GET.get("csv")
    if wanted is not None:
        found = [*context.get("charts", ()), *context.get("tables", ())]
        return charts.csv_named(found, wanted, f"usage-{name}")
    shown = "" if who.confined else f"tenant={name}&"
    context |= {"name": name, "names": names, "span": span, "query": f"{shown}{span.query}"}
    context |= {"presets": ranges.RANGES.values(), "months": ranges.months(at), "own": shown}
    context |= {"plotly_js": assets.address()}
    context |= {"keys": policy.keys(name).filter(revoked_at=None)[:SHOWN_KEYS]}
    context |= {"hide_tenant": True, "key_editor": who.can_for("keys.edit", name)}
    context |= {"unknown": unknown(document, name)}
    context |= search(asked, name, context) if asked and name else {}
    return render(request, "metering/usage.html", context)


def whose(who: Viewer, tenant: str, request_id: str) -> str:
    """The tenant that is shown. Whoever may see all finds a request without knowing whose it is."""
    if who.confined:
        return who.tenant or ""
    if request_id and (record := selectors.find_record(request_id)):
        return record.tenant
    return tenant


def search(asked: str, name: str, context: dict[str, Any]) -> dict[str, Any]:
    """One tenant's request by its id. Another tenant's is as if it were not there."""
    found = own.find(asked, name, context["standing"])
    return {"asked": asked, "found": found, "kept_days": settings.FAIRLANE_KEEP_RECORDS_DAYS}
