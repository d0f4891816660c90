"""How many requests were throttled, rejected or broke, by reason and by tenant."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from metering.counting import Total
from metering.dashboards import figures, reasons
from metering.dashboards.charts import Chart
from metering.dashboards.watching import Board, Watch

MOST_REASONS = 10
ENDS = {"throttled": "throttled", "rejected": "rejected", "errors": "errors"}


@dataclass(frozen=True, slots=True)
class Reason:
    name: str
    requests: int
    part: float  # of all requests in the range
    why: reasons.Why
    tenants: list[tuple[str, int]]  # most first


def refusals(watch: Watch) -> Board:
    return Board(
        [rate_chart(watch), tenant_chart(watch), reason_time_chart(watch), reason_chart(watch)],
        {"reasons": told(watch), "requests": sum(t.requests for t in watch.by_tenant.values())},
    )


def ended(total: Total, end: str) -> int:
    return int(total.sums["errors"]) if end == "errors" else total.tallies["ends"][end]


def rate_chart(watch: Watch) -> Chart:
    """Throttled: a limit of the tenant's. Rejected: by overload or a wrong request."""
    found = watch.series((), tallies=("ends",))
    values = {
        name: watch.grid.rows(
            (
                (place, name, 100 * ended(each, end) / each.requests if each.requests else None)
                for (place, _), each in found.items()
            ),
            None,
        ).get(name, [None] * len(watch.grid.times))
        for end, name in ENDS.items()
    }
    figure = figures.lines(watch.grid.times, values, figures.Ink(list(ENDS.values())), "%")
    return watch.over_time(
        "rate",
        "Throttled, rejected, broken",
        values,
        figures.with_legend(figure),
        "of all requests",
        empty="No requests in this range.",
    )


def tenant_chart(watch: Watch) -> Chart:
    found = watch.series(("tenant",), where={"tenant": watch.shown}, tallies=("throttled",))
    values = watch.rows(
        found,
        lambda each: 100 * each.throttled.total() / each.requests if each.requests else None,
        empty=None,
    )
    figure = figures.lines(watch.grid.times, values, watch.ink, "%")
    return watch.over_time(
        "tenants", "Refused, by tenant", values, figure, "throttled and rejected, of its requests"
    )


def reason_time_chart(watch: Watch) -> Chart:
    found = watch.series((), tallies=("throttled",))
    most = [reason.name for reason in told(watch)[:MOST_REASONS]]
    points = (
        (place, reason if reason in most else figures.OTHERS, float(number))
        for (place, _), each in found.items()
        for reason, number in each.throttled.items()
    )
    values = watch.grid.rows(points, 0.0)
    rates = watch.grid.a_minute(values)
    figure = figures.stacked(
        watch.grid.times, rates, figures.Ink(most), "refused a minute", percent=False
    )
    return watch.over_time(
        "reasons",
        "Refused a minute, by limit",
        values,
        figures.with_legend(figure),
        "which limit decided",
        empty="Nothing was refused in this range.",
    )


def reason_chart(watch: Watch) -> Chart:
    """Lying bars, one a reason, the tenants stacked in it."""
    most = told(watch)[:MOST_REASONS]
    names = watch.ink.order({tenant for reason in most for tenant, _ in reason.tenants})
    data = [
        {
            "type": "bar",
            "orientation": "h",
            "name": name,
            "y": [reason.name for reason in most],
            "x": [dict(reason.tenants).get(name, 0) for reason in most],
            "marker": {"color": watch.ink.colour(name)},
            "hovertemplate": "%{y}: %{x:,} refused",
        }
        for name in names
    ]
    figure = figures.bars([r.name for r in most], [r.requests for r in most], watch.ink, "")
    figure["data"] = data
    figure["layout"]["barmode"] = "stack"
    rows = [(reason.name, *pair) for reason in most for pair in reason.tenants]
    return Chart(
        "limits",
        "Refused, by limit and tenant",
        figure,
        ("limit", "tenant", "requests"),
        rows,
        "over the whole range",
        "Nothing was refused in this range.",
    )


def told(watch: Watch) -> list[Reason]:
    by_reason: dict[str, dict[str, int]] = defaultdict(dict)
    for tenant, total in watch.by_tenant.items():
        for reason, number in total.throttled.items():
            by_reason[reason][tenant] = number
    requests = sum(total.requests for total in watch.by_tenant.values()) or 1
    found = [
        Reason(
            name,
            sum(by.values()),
            sum(by.values()) / requests,
            reasons.of_limit(name),
            sorted(by.items(), key=lambda each: -each[1]),
        )
        for name, by in by_reason.items()
    ]
    return sorted(found, key=lambda reason: (-reason.requests, reason.name))
