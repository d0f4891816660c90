"""One tenant's own usage. Every query here is confined to that tenant.

Days are the viewer's: a day of a range is from midnight to midnight on the viewer's clock, 23 or 25
hours long where the clocks change. Money is showback, at the price that was in force when each
request was answered; it decides nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from django.utils.timezone import get_current_timezone, localtime

from metering import selectors
from metering.counting import TALLIES, Total
from metering.dashboards import charts, figures, own
from metering.dashboards.charts import Chart
from metering.dashboards.ranges import Grid, Span
from metering.dashboards.refusals import NONE_REFUSED, limit_of
from metering.reading import Reading
from metering.selectors import SHARE_SKETCHES, Share, shares_of
from tenants import selectors as policy
from tenants.core.document import Document

DIMENSIONS = ("application", "model", "key")
ADDED_UP = ("requests", "throttled", "prompt_tokens", "cached_tokens", "completion_tokens", "cost")
SHOWN_RECORDS = 20
MOST_NAMED = 500  # keys whose names are looked up
ENDS = ("served", "refused", "failed", "rejected", "cancelled")


@dataclass(frozen=True, slots=True)
class Line:
    """One application, model, key or day."""

    share: Share
    total: Total
    label: str = ""  # of a key: what its owner calls it

    @property
    def money(self) -> str:
        """With its currency; empty where nothing has a price."""
        return money_of(self.total)

    @property
    def exact_money(self) -> str:
        return " + ".join(f"{amount:f} {currency}" for currency, amount in amounts(self.total))

    @property
    def name(self) -> str:
        return self.share.name


def usage(name: str, document: Document, span: Span, at: datetime) -> dict[str, Any]:
    reading, of = Reading(span.since, span.until), {"tenant": name}
    groups = reading.totals(DIMENSIONS, of, TALLIES, SHARE_SKETCHES)
    whole = Total()
    for total in groups.values():
        whole.add(total)
    days = by_day(reading, of, span)
    lines = {each: by(each, groups) for each in DIMENSIONS}
    lines["key"] = named(lines["key"], name)
    standing = own.standing(name, document, at)
    return {
        "share": shares_of({name: whole})[0] if whole.requests else None,
        "money": money_of(whole, round_from=1),
        "priced": bool(whole.tallies["money"]),
        "lines": lines,
        "days": days,
        "zone_note": f"midnight to midnight, {get_current_timezone()}",
        "throttles": [
            (reason, count, standing.why(reason)) for reason, count in whole.throttled.most_common()
        ],
        "charts": charts_of(reading, of, span),
        "tables": [csv_of(each, lines[each]) for each in DIMENSIONS] + [csv_of("day", days)],
        "records": selectors.recent_records(name, SHOWN_RECORDS),
        "standing": standing,
        "budgets": standing.budgets,
    }


def by(dimension: str, groups: Mapping[tuple[str, ...], Total]) -> list[Line]:
    place, totals = DIMENSIONS.index(dimension), dict[str, Total]()
    for group, total in groups.items():
        totals.setdefault(group[place], Total()).add(total)
    return [Line(share, totals[share.name]) for share in shares_of(totals)]


def named(lines: Sequence[Line], tenant: str) -> list[Line]:
    ids = [line.name for line in lines[:MOST_NAMED]]
    found = policy.keys(tenant).filter(public_id__in=ids)
    labels = dict(found.values_list("public_id", "name"))
    return [replace(line, label=labels.get(line.name, "")) for line in lines]


def by_day(reading: Reading, of: Mapping[str, str], span: Span) -> list[Line]:
    """Newest first; days without use are left out."""
    edges = midnights(span)
    found = reading.series(edges, (), of, TALLIES)
    totals = {f"{localtime(edges[n]):%Y-%m-%d}": total for (n, _), total in found.items()}
    shares = sorted(shares_of(totals), key=lambda share: share.name, reverse=True)
    return [Line(share, totals[share.name]) for share in shares]


def midnights(span: Span) -> list[datetime]:
    """The edges of the viewer's days, the first and the last cut to the range."""
    zone = get_current_timezone()
    edges, day = [span.since], localtime(span.since).date()
    while True:
        day += timedelta(days=1)
        at = datetime(day.year, day.month, day.day, tzinfo=zone)
        if at >= span.until:
            return [*edges, span.until]
        edges.append(at)


def money_of(total: Total, round_from: int = 100) -> str:
    """As in 1.2346 USD; the currencies that it was priced in."""
    return " + ".join(
        f"{amount:,.{2 if amount >= round_from else 4}f} {currency}"
        for currency, amount in amounts(total)
    )


def amounts(total: Total) -> list[tuple[str, Decimal]]:
    return [(name, Decimal(nano) / 10**9) for name, nano in sorted(total.tallies["money"].items())]


def csv_of(dimension: str, lines: Sequence[Line]) -> Chart:
    header = (dimension, *ADDED_UP, "money")
    rows = [
        (line.name, *(getattr(line.share, name) for name in ADDED_UP), line.exact_money)
        for line in lines
    ]
    return Chart(f"{dimension}s", dimension, {}, header, rows)


def charts_of(reading: Reading, of: Mapping[str, str], span: Span) -> list[Chart]:
    found = reading.series(span.edges, (), of, ("ends", "throttled"), ("queue_ms", "ttft_ms"))
    grid, totals = Grid.of(span), {n: total for (n, _), total in found.items()}
    kinds = (("prompt", "prompt_tokens"), ("completion", "completion_tokens"))
    tokens = grid.rows(
        ((n, kind, total.sums[field]) for n, total in totals.items() for kind, field in kinds), 0.0
    )
    ends = ((n, end, float(k)) for n, each in totals.items() for end, k in each.ends.items())
    requests = grid.rows(ends, 0.0)
    return [
        one_chart(grid, "tokens", "Tokens a minute", tokens, ["prompt", "completion"]),
        one_chart(grid, "requests", "Requests a minute", requests, list(ENDS)),
        waits(grid, totals),
        refusals(grid, totals),
    ]


def waits(grid: Grid, totals: Mapping[int, Total]) -> Chart:
    kinds = (
        ("queue, p50", "queue_ms", 0.5),
        ("queue, p95", "queue_ms", 0.95),
        ("first token, p95", "ttft_ms", 0.95),
    )
    points = (
        (n, kind, each.quantile(name, q)) for n, each in totals.items() for kind, name, q in kinds
    )
    values = grid.rows(points, None)
    figure = figures.durations(grid.times, values, figures.Ink([kind for kind, *_ in kinds]))
    header, rows = charts.by_time(grid.times, values)
    note = "in the queue for a place on an engine, and from arrival to the first token"
    return Chart("queue", "Queue time", figures.with_legend(figure), header, rows, note)


def refusals(grid: Grid, totals: Mapping[int, Total]) -> Chart:
    points = (
        (n, limit_of(reason), float(number))
        for n, each in totals.items()
        for reason, number in each.throttled.items()
    )
    values = grid.rows(points, 0.0)
    chart = one_chart(grid, "throttles", "Refused a minute, by limit", values, sorted(values))
    return replace(chart, empty=NONE_REFUSED, note="the table below says what helps")


def one_chart(
    grid: Grid, name: str, title: str, values: dict[str, list[float | None]], names: list[str]
) -> Chart:
    ordered = {each: values[each] for each in names if each in values}
    ink = figures.Ink(names)
    figure = figures.stacked(grid.times, grid.a_minute(ordered), ink, f"{name} a minute", False)
    header, rows = charts.by_time(grid.times, ordered)
    return Chart(name, title, figures.with_legend(figure), header, rows)
