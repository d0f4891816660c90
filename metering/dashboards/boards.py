"""The operator's boards: one view for all, which knows addresses, filters, CSV and refreshes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.urls import reverse
from django.utils import timezone
from django.utils.cache import patch_vary_headers
from django_htmx.middleware import HtmxDetails

from metering.counting import SKETCHES
from metering.dashboards import assets, charts, ranges
from metering.dashboards.budgets_board import budgets_board
from metering.dashboards.charts import Chart
from metering.dashboards.lanes_board import lanes_board
from metering.dashboards.latency import latency
from metering.dashboards.neighbours import neighbours
from metering.dashboards.overview import overview, tenants_table
from metering.dashboards.pools_board import pools_board
from metering.dashboards.refusals import refusals
from metering.dashboards.watching import WAITS, Board, Filters, Watch
from tenants import selectors as policy
from tenants.core.document import Document


@dataclass(frozen=True, slots=True)
class Kind:
    """`filters` are those that mean something on this board."""

    name: str
    label: str
    make: Callable[[Watch], Board]
    filters: tuple[str, ...]
    legend: str = "ink"  # whose colours the charts have in common
    ranged: bool = True  # False: it is about this moment
    sketches: tuple[str, ...] = ()
    tables: Mapping[str, Callable[[Watch], Chart]] | None = None  # as CSV only


KINDS = {
    kind.name: kind
    for kind in (
        Kind(
            "overview",
            "Overview",
            overview,
            ("tenant", "lane", "pool"),
            sketches=WAITS,
            tables={"tenants": tenants_table},
        ),
        Kind("latency", "Latency", latency, ("tenant", "lane", "pool"), sketches=SKETCHES),
        Kind("throttles", "Throttles", refusals, ("tenant", "lane", "pool")),
        Kind("lanes", "Lanes", lanes_board, ("lane", "pool"), "lane_ink"),
        Kind("pools", "Pools", pools_board, ("pool",), "pool_ink"),
        Kind("budgets", "Budgets", budgets_board, ("tenant",), "", ranged=False),
        Kind("neighbours", "Noisy neighbours", neighbours, ("tenant", "pool"), "", sketches=WAITS),
    )
}


def board(request: HttpRequest, name: str = "overview") -> HttpResponse:
    kind = KINDS.get(name)
    if kind is None:
        raise Http404
    absolute = ranges.canonical(request.GET)
    if absolute:
        return HttpResponseRedirect(f"{request.path}?{ranges.replaced(request.GET, absolute)}")
    document, at = policy.current_document(), timezone.now()
    given = {field: request.GET.get(field, "").strip() for field in kind.filters}
    watch = Watch(ranges.chosen(request.GET, at), Filters(**given), document, at, kind.sketches)
    wanted = request.GET.get("csv")
    if table := (kind.tables or {}).get(wanted or ""):
        return charts.as_csv(table(watch), f"fairlane-{name}")
    made = kind.make(watch)
    if wanted is not None:
        return charts.csv_named(made.charts, wanted, f"fairlane-{name}")
    return _page(request, kind, watch, made)


def _page(request: HttpRequest, kind: Kind, watch: Watch, made: Board) -> HttpResponse:
    context: dict[str, Any] = {
        "kind": kind,
        "tabs": tabs(kind, watch),
        "span": watch.span,
        "filters": watch.filters,
        "choices": choices(kind, watch.document, watch.filters),
        "unknown": unknown(watch.document, watch.filters.tenant),
        "presets": ranges.RANGES.values(),
        "months": ranges.months(watch.at),
        "query": watch.query,
        "charts": made.charts,
        "legend": legend(kind, watch, made),
        "at": watch.at,
        "board": f"metering/boards/{kind.name}.html",
        "plotly_js": assets.address(),
        **made.context,
    }
    details: HtmxDetails = request.htmx  # type: ignore[attr-defined]
    response = render(request, context["board"] if details else "metering/board.html", context)
    patch_vary_headers(response, ["HX-Request"])  # else "back" may show the part as the page
    return response


def address(name: str) -> str:
    return reverse("overview") if name == "overview" else reverse("watch", args=[name])


def tabs(kind: Kind, watch: Watch) -> list[dict[str, Any]]:
    """The other boards, about the same range and, where they have them, the same filters."""
    found = []
    for other in KINDS.values():
        kept = {field: getattr(watch.filters, field) for field in other.filters}
        query = "&".join(part for part in (watch.span.query, Filters(**kept).query) if part)
        found.append(
            {"label": other.label, "here": other is kind, "url": f"{address(other.name)}?{query}"}
        )
    return found


def unknown(document: Document, tenant: str) -> str:
    """A tenant that was asked for, where policy has none of that name."""
    known = not tenant or any(each.name == tenant for each in document.tenants)
    return "" if known else tenant


def choices(kind: Kind, document: Document, filters: Filters) -> list[dict[str, Any]]:
    """Tenants may be thousands: they are typed."""
    names: dict[str, list[str]] = {
        "tenant": [],
        "lane": [each.name for each in sorted(document.lanes, key=lambda lane: lane.rank)],
        "pool": [each.model for each in document.pools],
    }
    found = []
    for field in kind.filters:
        chosen = getattr(filters, field)
        known = names[field] if chosen in ("", *names[field]) else [chosen, *names[field]]
        found.append(
            {"field": field, "label": field.capitalize(), "names": known, "chosen": chosen}
        )
    return found


def legend(kind: Kind, watch: Watch, made: Board) -> list[tuple[str, str]]:
    """The names in the charts, with their colours."""
    if not kind.legend:
        return []
    ink = getattr(watch, kind.legend)
    shown = [
        row["name"] if isinstance(row, dict) else row.name for row in made.context.get("rows", [])
    ]
    names = shown or watch.shown if kind.legend == "ink" else shown
    more = kind.legend == "ink" and len(watch.shares) > len(watch.shown)
    names = ink.order(names if kind.legend != "ink" else watch.shown or names[:12])
    return [(name, ink.colour(name)) for name in [*names, *(["(others)"] if more else [])]]
