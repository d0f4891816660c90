"""Who waited how long, and for what: the queue, the first token, or the tokens after it."""

from __future__ import annotations

from functools import partial
from typing import Any

from metering.counting import Total
from metering.dashboards import figures
from metering.dashboards.charts import Chart
from metering.dashboards.watching import Board, Watch

KINDS = (
    ("queue_ms", "queue", "p95 queue time", "waiting for a place on an engine: contention"),
    ("ttft_ms", "ttft", "p95 time to first token", "from arrival, so with the queue"),
    ("tpot_ms", "tpot", "p95 time per token", "after the first: how fast the engine decodes"),
    ("e2e_ms", "e2e", "p95 whole request", "from arrival to the last byte"),
)


def latency(watch: Watch) -> Board:
    names = tuple(kind for kind, *_ in KINDS)
    found = watch.series(("tenant",), where={"tenant": watch.shown}, sketches=names)
    charts: list[Chart] = []
    for kind, name, title, note in KINDS:
        values = watch.rows(found, partial(Total.quantile, name=kind, q=0.95), empty=None)
        figure = figures.durations(watch.grid.times, values, watch.ink)
        charts.append(watch.over_time(name, title, values, figure, note))
    return Board(charts, {"rows": rows(watch)})


def rows(watch: Watch) -> list[dict[str, Any]]:
    """Every tenant, slowest queue first."""
    found: list[dict[str, Any]] = [
        {
            "name": name,
            "colour": watch.ink.colour(name),
            "requests": total.requests,
            **{
                f"{kind}_{q}": total.quantile(kind, q / 100) for kind, *_ in KINDS for q in (50, 95)
            },
        }
        for name, total in watch.by_tenant.items()
    ]
    return sorted(found, key=lambda row: -(row["queue_ms_95"] or 0.0))
