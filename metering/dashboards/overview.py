"""What the overview shows, put together from the selectors; nothing here reads a request.

1. Charts hold at most `MOST` tenants, those with the largest cost; the others are one more.
2. A table beside the charts holds every tenant and every figure that the charts draw.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from metering import selectors
from metering.dashboards import figures, live
from metering.dashboards.ranges import Grid, Range
from metering.selectors import DebtPoint, SeriesPoint, Share

MOST = 12
OTHERS = "(others)"


@dataclass(frozen=True, slots=True)
class Row:
    """One tenant in the table; `share` is None where it had no usage in the range."""

    name: str
    colour: str
    share: Share | None
    by_weight: float | None  # what its weight implies among those with usage in the range
    standing: live.Standing | None


def overview(at: datetime, chosen: Range, weights: Mapping[str, float]) -> dict[str, Any]:
    """`weights` names every tenant of the policy, in the order that gives each its colour."""
    since = at - chosen.length
    shares = selectors.tenant_overview(since, at)
    now = live.combine(selectors.latest_samples(at))
    ink = figures.Ink(list(weights))
    return {
        "range": chosen,
        "at": at,
        "alerts": selectors.open_alerts(5),
        "live": now,
        "totals": totals(shares),
        "rows": rows(shares, now, weights, ink),
        "figures": charts(since, at, chosen, shares, ink),
    }


def totals(shares: Sequence[Share]) -> dict[str, Any]:
    requests = sum(share.requests for share in shares)
    throttled = sum(share.throttled for share in shares)
    waits = [(share.queue_p95_ms, share.name) for share in shares if share.queue_p95_ms is not None]
    worst, whose = max(waits, default=(None, ""))
    return {
        "requests": requests,
        "tokens": sum(share.tokens for share in shares),
        "cost": sum(share.cost for share in shares),
        "throttle_rate": throttled / requests if requests else None,
        "throttled": throttled,
        "errors": sum(share.errors for share in shares),
        "worst_queue_ms": worst,
        "worst_queue_tenant": whose,
    }


def rows(
    shares: Sequence[Share], now: live.Live, weights: Mapping[str, float], ink: figures.Ink
) -> list[Row]:
    used = {share.name: share for share in shares}
    whole = sum(weights.get(name, 0.0) for name in used)
    names = [*used, *(name for name in now.tenants if name not in used)]
    return [
        Row(
            name=name,
            colour=ink.colour(name),
            share=used.get(name),
            by_weight=weights[name] / whole if whole and name in used and name in weights else None,
            standing=now.tenants.get(name),
        )
        for name in names
    ]


def charts(
    since: datetime, until: datetime, chosen: Range, shares: Sequence[Share], ink: figures.Ink
) -> dict[str, figures.Figure]:
    shown = [share.name for share in shares[:MOST]]
    grid = Grid.over(since, until, chosen.step)
    points = selectors.token_series(grid.times[0], until, chosen.step)
    tokens = grid.sums(
        (
            (p.at, _or_others(p.tenant, shown), p.prompt_tokens + p.completion_tokens)
            for p in points
        ),
        empty=0.0,
    )
    waits = [seconds(share.queue_p95_ms) for share in shares[:MOST]]
    return {
        "tokens": figures.stacked(grid.times, tokens, ink, "tokens", percent=False),
        "share": figures.stacked(grid.times, tokens, ink, "tokens", percent=True),
        "debt": debt_chart(since, until, chosen, shown, ink),
        "queue": figures.bars(shown, waits, ink, " s"),
        "throttle": figures.lines(grid.times, _rates(grid, points, shown), ink, "%"),
        "reasons": reason_chart(since, until, shown, ink),
    }


def seconds(milliseconds: float | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1000


def debt_chart(
    since: datetime, until: datetime, chosen: Range, shown: Sequence[str], ink: figures.Ink
) -> figures.Figure:
    step = max(chosen.length / 180, timedelta(seconds=5))
    grid = Grid.over(since, until, step)
    series = selectors.sample_series(grid.times[0], until, step)
    points = [point for point in series if point.tenant in shown]
    largest = _largest_debts(grid, points)
    bound = max((point.bound_units for point in points), default=0.0)
    values = grid.sums(((at, name, debt) for (at, name), debt in largest.items()), empty=None)
    return figures.debts(grid.times, values, ink, bound)


def _largest_debts(grid: Grid, points: Iterable[DebtPoint]) -> dict[tuple[datetime, str], float]:
    """One value a step and tenant: over pools and lanes, the one furthest from zero."""
    largest: dict[tuple[datetime, str], float] = {}
    for point in points:
        if (index := grid.place(point.at)) is None:
            continue
        key = (grid.times[index], point.tenant)
        if abs(point.debt) >= abs(largest.get(key, 0.0)):
            largest[key] = point.debt
    return largest


def _rates(
    grid: Grid, points: Sequence[SeriesPoint], shown: Sequence[str]
) -> dict[str, list[float | None]]:
    mine = [point for point in points if point.tenant in shown]
    requests = grid.sums(((p.at, p.tenant, p.requests) for p in mine), empty=None)
    throttled = grid.sums(((p.at, p.tenant, p.throttled) for p in mine), empty=None)
    return {
        name: [
            100 * (refused or 0.0) / asked if asked else None
            for asked, refused in zip(requests[name], throttled[name], strict=True)
        ]
        for name in requests
    }


def reason_chart(
    since: datetime, until: datetime, shown: Sequence[str], ink: figures.Ink
) -> figures.Figure:
    counts: dict[str, dict[str, int]] = defaultdict(dict)
    for throttle in selectors.throttles(since, until):
        by = counts[throttle.reason]
        name = _or_others(throttle.tenant, shown)
        by[name] = by.get(name, 0) + throttle.count
    most = sorted(counts, key=lambda reason: -sum(counts[reason].values()))[:8]
    return figures.reasons({reason: counts[reason] for reason in most}, ink)


def _or_others(name: str, shown: Sequence[str]) -> str:
    return name if name in shown else OTHERS
