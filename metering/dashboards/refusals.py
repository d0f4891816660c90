"""How many requests were refused, failed or were rejected, by reason and by tenant."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from metering.dashboards import figures, reasons
from metering.dashboards.budgets import owned_by, owned_by_keys
from metering.dashboards.charts import Chart
from metering.dashboards.ranges import OVER, RUNNING
from metering.dashboards.watching import Board, Watch
from tenants import selectors as policy

MOST_REASONS = 10
NONE_REFUSED = f"{OVER} nothing was refused. {RUNNING}"
ENDS = ("refused", "failed", "rejected")


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
        {
            "reasons": told(watch, kinds(watch)),
            "requests": sum(t.requests for t in watch.by_tenant.values()),
        },
    )


def rate_chart(watch: Watch) -> Chart:
    found = watch.series((), tallies=("ends", "throttled"))
    points = (
        (place, end, 100 * each.ends[end] / each.requests if each.requests else None)
        for (place, _), each in found.items()
        for end in ENDS
    )
    values = watch.grid.rows(points, None)
    figure = figures.lines(watch.grid.times, values, figures.Ink(list(ENDS)), "%")
    return watch.over_time(
        "rate",
        "Refused, failed, rejected",
        values,
        figures.with_legend(figure),
        "of all requests; refused: a limit decided; failed: an answer of 500 and above that none "
        "decided; rejected: the request was wrong",
        empty="No requests in this range.",
    )


def tenant_chart(watch: Watch) -> Chart:
    found = watch.series(("tenant",), where={"tenant": watch.shown}, tallies=("throttled",))
    values = watch.rows(found, lambda each: each.refused_percent, empty=None)
    figure = figures.lines(watch.grid.times, values, watch.ink, "%")
    return watch.over_time(
        "tenants", "Refused, by tenant", values, figure, "a limit decided, of its requests"
    )


def reason_time_chart(watch: Watch) -> Chart:
    found = watch.series((), tallies=("throttled",))
    most = [limit for limit, _ in by_limit(watch)]
    points = (
        (place, limit if (limit := limit_of(reason)) in most else figures.OTHERS, float(number))
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
        empty=NONE_REFUSED,
    )


def reason_chart(watch: Watch) -> Chart:
    """Lying bars, one a limit, the tenants stacked in it."""
    most = by_limit(watch)
    limits = [limit for limit, _ in most]
    data = [
        {
            "type": "bar",
            "orientation": "h",
            "name": name,
            "y": limits,
            "x": [by.get(name, 0) for _, by in most],
            "marker": {"color": watch.ink.colour(name)},
            "hovertemplate": "%{y}: %{x:,} refused",
        }
        for name in watch.ink.order({tenant for _, by in most for tenant in by})
    ]
    figure = figures.bars(limits, [sum(by.values()) for _, by in most], watch.ink, "")
    figure["data"] = data
    figure["layout"]["barmode"] = "stack"
    return Chart(
        "limits",
        "Refused, by limit and tenant",
        figure,
        ("limit", "tenant", "requests"),
        [(limit, *pair) for limit, by in most for pair in by.items()],
        "over the whole range",
        "Nothing was refused in this range.",
    )


def limit_of(reason: str) -> str:
    """Budgets of one name are one limit, whoever's they are."""
    return f"budget {reason.rpartition('/')[2]}" if ":" in reason else reason


def by_limit(watch: Watch) -> list[tuple[str, dict[str, int]]]:
    """The limits that refused most, each by tenant, most first."""
    found: dict[str, Counter[str]] = defaultdict(Counter)
    for reason in told(watch):
        found[limit_of(reason.name)].update(dict(reason.tenants))
    most = sorted(found.items(), key=lambda each: (-each[1].total(), each[0]))[:MOST_REASONS]
    return [(limit, dict(by.most_common())) for limit, by in most]


def kinds(watch: Watch) -> dict[str, str]:
    """Of every budget in force, by its account."""
    tiers = {tier.name: tier for tier in watch.document.tiers}
    owned = [b for each in watch.document.tenants for b in owned_by(each, tiers[each.tier])]
    owned += owned_by_keys(policy.key_budgets())
    return {each.account: each.budget.kind for each in owned}


def told(watch: Watch, kinds: Mapping[str, str] = MappingProxyType({})) -> list[Reason]:
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
            reasons.of_limit(name, kinds),
            sorted(by.items(), key=lambda each: -each[1]),
        )
        for name, by in by_reason.items()
    ]
    return sorted(found, key=lambda reason: (-reason.requests, reason.name))
