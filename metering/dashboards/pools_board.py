"""Pools over time: how full they were, what waited, and what prefix caches saved."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from metering.dashboards import errors, figures
from metering.dashboards.charts import Chart
from metering.dashboards.watching import Board, Watch
from metering.live_history import Past

NOTHING = "A gateway tells of its pools while it runs; none did in this range."


def pools_board(watch: Watch) -> Board:
    found = watch.past("pool", "pool")
    kinds = (
        (
            "running",
            "Running requests",
            lambda p: _over(p.running_s, p.observed_s),
            "",
            "on the mean",
        ),
        (
            "waiting",
            "Waiting requests",
            lambda p: _over(p.queued_s, p.observed_s),
            "",
            "on the mean",
        ),
        (
            "kv",
            "KV cache in use",
            lambda p: _part(p.load_s, p.max_load_s),
            "%",
            "tokens held by running requests, of the capacity that the gateway knows",
        ),
        (
            "batch",
            "Batch size",
            lambda p: _over(p.running_s, p.endpoints_s),
            "",
            "requests running on each available endpoint, on the mean",
        ),
    )
    charts = [chart(watch, found, *kind) for kind in kinds]
    charts.insert(3, hits_chart(watch))
    charts.append(served_chart(watch, found))
    context = {
        "rows": rows(watch, found),
        "pool_ink": watch.pool_ink,
        "errors": errors.rows_of(watch),
        "errors_of": errors.MOST,
    }
    return Board(charts, context)


Pools = Mapping[tuple[int, tuple[str, ...]], Past]


def chart(
    watch: Watch,
    found: Pools,
    name: str,
    title: str,
    value: Callable[[Past], float | None],
    unit: str,
    note: str,
) -> Chart:
    values = watch.rows(found, value, empty=None)
    most = 100 if unit == "%" else None
    figure = figures.lines(watch.grid.times, values, watch.pool_ink, unit, most)
    return watch.over_time(name, title, values, figure, note, empty=NOTHING)


def hits_chart(watch: Watch) -> Chart:
    found = watch.series(("model",))
    values = watch.rows(
        found,
        lambda each: _part(each.sums["cached_tokens"], each.sums["prompt_tokens"]),
        empty=None,
    )
    figure = figures.lines(watch.grid.times, values, watch.pool_ink, "%", 100)
    note = "prompt tokens that engines found in a cache, of all prompt tokens"
    return watch.over_time("hits", "Prefix cache hits", values, figure, note)


def served_chart(watch: Watch, found: Pools) -> Chart:
    served = watch.rows(found, lambda each: max(0.0, each.served))
    rate = watch.grid.a_minute(served)
    figure = figures.lines(watch.grid.times, rate, watch.pool_ink)
    note = "units a minute"
    return watch.over_time("served", "Service", served, figure, note, empty=NOTHING)


def rows(watch: Watch, found: Pools) -> list[dict[str, Any]]:
    usage = watch.reading.totals(("model",), watch.where)
    answer: list[dict[str, Any]] = []
    for pool in watch.document.pools:
        mine = [each for (_, (name,)), each in found.items() if name == pool.model]
        total = usage.get((pool.model,))
        if not mine and total is None:
            continue
        seconds = sum(each.observed_s for each in mine)
        sums = total.sums if total else {}
        answer.append(
            {
                "name": pool.model,
                "colour": watch.pool_ink.colour(pool.model),
                "running": _over(sum(each.running_s for each in mine), seconds),
                "waiting": _over(sum(each.queued_s for each in mine), seconds),
                "oldest_s": max((each.oldest_wait_s for each in mine), default=None),
                "kv": _over(sum(e.load_s for e in mine), sum(e.max_load_s for e in mine)),
                "slots": _over(sum(e.running_s for e in mine), sum(e.max_running_s for e in mine)),
                "hits": _over(sums.get("cached_tokens", 0), sums.get("prompt_tokens", 0)),
                "served": sum(max(0.0, each.served) for each in mine),
            }
        )
    return answer


def _over(value: float, by: float) -> float | None:
    return value / by if by else None


def _part(value: float, of: float) -> float | None:
    return 100 * value / of if of else None
