"""The usage page: a tenant's own, or for operators any tenant's."""

from __future__ import annotations

from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.utils import timezone

from metering.dashboards import assets, charts, ranges
from metering.dashboards.usage import usage as usage_of
from tenants import selectors as policy
from tenants.gate import viewer


def usage(request: HttpRequest) -> HttpResponse:
    """A tenant's people see their own tenant, whatever the address says."""
    absolute = ranges.canonical(request.GET)
    if absolute:
        return HttpResponseRedirect(f"{request.path}?{ranges.replaced(request.GET, absolute)}")
    who, document, at = viewer(request), policy.current_document(), timezone.now()
    names = [] if who.confined else [each.name for each in document.tenants]
    name = who.tenant if who.confined else request.GET.get("tenant") or next(iter(names), "")
    span = ranges.chosen(request.GET, at, "24h")
    context = usage_of(name, document, span, at) if name else {}
    wanted = request.GET.get("csv")
    if wanted is not None:
        return csv(context, wanted, name or "")
    own = "" if who.confined else f"tenant={name}&"
    context |= {"name": name, "names": names, "span": span, "query": f"{own}{span.query}"}
    context |= {"presets": ranges.RANGES.values(), "plotly_js": assets.address(), "own": own}
    context |= {"keys": policy.keys(name)[:50], "hide_tenant": True, "confined": who.confined}
    return render(request, "metering/usage.html", context)


def csv(context: dict[str, object], wanted: str, name: str) -> HttpResponse:
    found = [*context.get("charts", ()), *context.get("tables", ())]  # type: ignore[misc]
    for chart in found:
        if chart.name == wanted:
            return charts.as_csv(chart, f"usage-{name}")
    raise Http404
