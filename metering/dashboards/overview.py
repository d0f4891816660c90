"""The overview: who is getting what, is that fair, and who is slow.

1. Charts hold at most `MOST` tenants, those with the largest cost; the others are one more.
2. A table beside the charts holds every figure that the charts draw, of at most `MOST_ROWS`
   tenants; the list of tenants has the rest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from metering import selectors
from metering.alerts.rules import rules
from metering.alerts.subjects import look_at
from metering.core.alert_kinds import Rule
from metering.counting import TALLIES
from metering.dashboards import figures, live, ranges, state
from metering.dashboards.charts import Chart
from metering.dashboards.fairness import Fairness, fairness
from metering.dashboards.usage import Line, csv_of
from metering.dashboards.watching import MOST, Board, Watch
from metering.models import Alert
from metering.selectors import Share, shares_of
from tenants.core.document import Document

MOST_SLOW = 5
MOST_ALERTS = 5
MOST_ROWS = 100  # of the table; the list of tenants has them all


@dataclass(frozen=True, slots=True)
class Row:
    """One tenant in the table; `share` is None where it had no usage in the range."""

    name: str
    colour: str
    share: Share | None
    by_weight: float | None  # what its weight implies among those with usage in the range
    suspended: bool
    standing: live.Standing | None


def overview(watch: Watch) -> Board:
    now = live.combine(selectors.latest_samples(watch.at))
    note_drains(now, watch.document)
    fair, listed = fairness(watch), rows(watch, now)
    context = {
        "alerts": alerts(watch.document),
        "live": now,
        "states": state.seen_by(now.gateways),
        "totals": totals(watch.shares),
        "rows": listed[:MOST_ROWS],
        "more": max(0, len(listed) - MOST_ROWS),
        "slow": slow(watch, fair),
    }
    return Board([*token_charts(watch), entitled_chart(watch, fair), *wait_charts(watch)], context)


def tenants_table(watch: Watch) -> Chart:
    """Every tenant's use and its money, for whoever writes bills."""
    found = watch.reading.totals(("tenant",), watch.where, TALLIES)
    totals = {name: total for (name,), total in found.items()}
    return csv_of("tenant", [Line(each, totals[each.name]) for each in shares_of(totals)])


def alerts(document: Document) -> list[tuple[Alert, Rule | None, tuple[str, str] | None]]:
    """Each with its rule and where to look; critical ones first, the newest first among equals."""
    known, rule = {each.name for each in document.tenants}, rules()
    found = [(each, rule.get(each.kind)) for each in selectors.open_alerts()]
    found.sort(key=lambda each: each[1] is None or each[1].level != "critical")
    return [(each, of, look_at(each, known)) for each, of in found[:MOST_ALERTS]]


def note_drains(now: live.Live, document: Document) -> None:
    """Gateways call an endpoint that policy drains unavailable; it is not down."""
    drained = {
        (pool.model, each.url) for pool in document.pools for each in pool.endpoints if each.drain
    }
    for pool in now.pools:
        for endpoint in pool["endpoints"]:
            endpoint["drain"] = (pool["model"], endpoint["url"]) in drained


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


def rows(watch: Watch, now: live.Live) -> list[Row]:
    used, weights = {share.name: share for share in watch.shares}, watch.weights
    whole = sum(weights.get(name, 0.0) for name in used)
    wanted = watch.filters.tenant
    suspended = {each.name for each in watch.document.tenants if not each.enabled}
    names = [*used, *(n for n in now.tenants if n not in used and wanted in ("", n))]
    return [
        Row(
            name=name,
            colour=watch.ink.colour(name),
            share=used.get(name),
            by_weight=weights[name] / whole if whole and name in used and name in weights else None,
            suspended=name in suspended,
            standing=now.tenants.get(name),
        )
        for name in names
    ]


def slow(watch: Watch, fair: Mapping[str, Fairness]) -> list[dict[str, Any]]:
    """Those whose requests waited longest, worst first."""
    waited: list[dict[str, Any]] = [
        {"share": share, "waited_s": fair[share.name].waited_s if share.name in fair else 0.0}
        for share in watch.shares
        if share.queue_p95_ms and share.queue_p95_ms >= 1.0
    ]
    waited.sort(key=lambda each: -(each["share"].queue_p95_ms or 0.0))
    return waited[:MOST_SLOW]


def token_charts(watch: Watch) -> list[Chart]:
    tokens = tokens_of(watch)
    rate, times = watch.grid.a_minute(tokens), watch.grid.times
    ink = watch.ink
    return [
        watch.over_time(
            "tokens",
            "Tokens a minute",
            tokens,
            figures.stacked(times, rate, ink, "tokens a minute", percent=False),
            "prompt and completion",
        ),
        watch.over_time(
            "share",
            "Token share",
            tokens,
            figures.stacked(times, tokens, ink, "tokens", percent=True),
            "of all tokens",
        ),
    ]


def tokens_of(watch: Watch) -> dict[str, list[float | None]]:
    """Of those that are shown, and of all others together: what is read does not grow with the
    number of tenants."""
    mine = watch.series(("tenant",), where={"tenant": watch.shown})
    tokens = watch.rows(mine, lambda total: total.tokens)
    if len(watch.shares) > len(watch.shown):
        whole = watch.rows(watch.series(("lane",)), lambda total: total.tokens, shown=())
        for every in whole.values():
            mine_of = [sum(row[n] or 0.0 for row in tokens.values()) for n in range(len(every))]
            rest = [(one or 0.0) - known for one, known in zip(every, mine_of, strict=True)]
            tokens[figures.OTHERS] = list(rest)
    return tokens


def entitled_chart(watch: Watch, fair: Mapping[str, Fairness]) -> Chart:
    """Of what was served while somebody waited, in service units."""
    names = [name for name in watch.ink.order(fair) if fair[name].entitled > 0]
    names = sorted(names, key=lambda name: -fair[name].entitled)[:12]
    got, entitled = ([getattr(fair[n], field) for n in names] for field in ("got", "entitled"))
    header = ("tenant", "got_units", "entitled_units")
    values = {"got": percent(got), "entitled": percent(entitled)}
    return Chart(
        "entitled",
        "Share against entitled share",
        figures.pairs(names, values, watch.ink),
        header,
        list(zip(names, got, entitled, strict=True)),
        "filled: got; outlined: what weights imply, up to what each asked for. Both are sums over "
        "the range; what is still owed of a gap is the debt",
        f"{ranges.OVER} nobody waited: all got what they asked for. {ranges.RUNNING}",
    )


def percent(values: Sequence[float]) -> list[float | None]:
    whole = sum(values)
    return [100 * value / whole if whole else None for value in values]


def wait_charts(watch: Watch) -> list[Chart]:
    return [debt_chart(watch), queue_chart(watch), refused_chart(watch)]


def debt_chart(watch: Watch) -> Chart:
    values = watch.grid.rows(
        ((step, name, debt) for (step, name), debt in debts(watch).items()), empty=None
    )
    pools = watch.past("pool", "pool", fields=("bound",))
    bound = max((each.bound for each in pools.values()), default=0.0)
    return watch.over_time(
        "debt",
        "Fairness debt",
        values,
        figures.debts(watch.grid.times, values, watch.ink, bound),
        "units; above zero is owed, dashed is the bound",
        empty=f"{ranges.OVER} nobody waited: nobody is owed anything. {ranges.RUNNING}",
    )


def debts(watch: Watch) -> dict[tuple[int, str], float]:
    """By step and tenant the debt furthest from zero, over pools and lanes, of those who waited."""
    shown = watch.shown or sorted({name for _, (*_, name) in watch.queues})[:MOST]
    found: dict[tuple[int, str], float] = {}
    for (step, (*_, name)), each in watch.queues.items():
        if each.waiting_s and name in shown:
            known = found.get((step, name), 0.0)
            found[step, name] = max(known, each.debt, key=abs)
    return found


def queue_chart(watch: Watch) -> Chart:
    shown = sorted(watch.shares, key=lambda share: -(share.queue_p95_ms or 0.0))[:12]
    names, waits = [s.name for s in shown], [s.queue_p95_ms for s in shown]
    header = ("tenant", "queue_p50_ms", "queue_p95_ms", "ttft_p95_ms")
    return Chart(
        "queue",
        "p95 queue time",
        figures.duration_bars(names, waits, watch.ink),
        header,
        [(s.name, s.queue_p50_ms, s.queue_p95_ms, s.ttft_p95_ms) for s in shown],
        "over the whole range, slowest first",
        "No request waited in this range.",
    )


def refused_chart(watch: Watch) -> Chart:
    mine = watch.series(("tenant",), tallies=("throttled",), where={"tenant": watch.shown})
    rates = watch.rows(mine, lambda each: each.refused_percent, empty=None)
    return watch.over_time(
        "throttle",
        "Throttle rate",
        rates,
        figures.lines(watch.grid.times, rates, watch.ink, "%"),
        "of each tenant's requests",
    )
