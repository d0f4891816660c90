"""Lanes over time: what each got against what is reserved for it, its queue, its oldest wait.

A reserved share is promised of each pool, while the lane waits there, and for as much as it asks:
whoever asks for less is not owed the rest. What it asked for is taken as for tenants (fairness.py):
it gets all of it while it does not wait, and asks on at that pace while it waits.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from metering.dashboards import figures
from metering.dashboards.charts import Chart
from metering.dashboards.fairness import asked_for, waiting_part
from metering.dashboards.ranges import OVER, RUNNING
from metering.dashboards.watching import Board, Watch
from metering.live_history import Past, past

NOTHING = "A gateway tells of its lanes while it runs; none did in this range."
NEVER = f"{OVER} no lane waited: only then is a share promised. {RUNNING}"


def lanes_board(watch: Watch) -> Board:
    found, kept = watch.past("lane", "lane"), promises(watch)
    return Board(
        [
            share_chart(watch, found),
            reserved_chart(watch, kept),
            depth_chart(watch, found),
            wait_chart(watch, found),
        ],
        {"rows": rows(watch, found, kept), "lane_ink": watch.lane_ink},
    )


Lanes = Mapping[tuple[int, tuple[str, ...]], Past]


def share_chart(watch: Watch, found: Lanes) -> Chart:
    served = watch.rows(found, lambda each: max(0.0, each.served))
    figure = figures.stacked(watch.grid.times, served, watch.lane_ink, "units", percent=True)
    return watch.over_time(
        "share", "Share of service", served, figure, "of all units served", empty=NOTHING
    )


def reserved_chart(watch: Watch, kept: Mapping[str, Promise]) -> Chart:
    """What a lane got while it waited: only then is its share promised."""
    lanes = sorted(watch.document.lanes, key=lambda lane: lane.rank)
    asked = [each.name for each in lanes if watch.filters.lane in ("", each.name)]
    names = [name for name in asked if name in kept]
    got = [100 * kept[name].got / kept[name].of for name in names]
    promised = [100 * kept[name].promised / kept[name].of for name in names]
    figure = figures.pairs(names, {"got": got, "promised": promised}, watch.lane_ink)
    rows_of = list(zip(names, got, promised, strict=True))
    note = "while it waited; filled: got; outlined: its reserved share, up to what it asked for"
    header = ("lane", "got_percent", "promised_percent")
    return Chart("reserved", "Share against reserved share", figure, header, rows_of, note, NEVER)


@dataclass(slots=True)
class Promise:
    """Of one lane, in units, over the time in which it waited. `of`: what its pools served then."""

    got: float = 0.0
    promised: float = 0.0
    of: float = 0.0


def promises(watch: Watch) -> dict[str, Promise]:
    """By lane; those that waited where anything was served."""
    reserved = {lane.name: lane.reserved_share for lane in watch.document.lanes}
    where = {"pool": watch.filters.pool}  # of all lanes, also where the page is of one
    found = past(watch.span.edges, "lane", ("pool", "lane"), where)
    whole = defaultdict[tuple[int, str], float](float)
    for (step, (pool, _)), each in found.items():
        whole[step, pool] += max(0.0, each.served)
    kept = defaultdict[str, Promise](Promise)
    for (step, (pool, lane)), each in found.items():
        waited, served = waiting_part(each), max(0.0, each.served)
        if of := waited * whole[step, pool]:
            due = min(asked_for(served, waited), reserved.get(lane, 0.0) * whole[step, pool])
            kept[lane].got += waited * served
            kept[lane].promised += waited * due
            kept[lane].of += of
    return dict(kept)


def depth_chart(watch: Watch, found: Lanes) -> Chart:
    seconds = [minutes * 60 for minutes in watch.grid.minutes]
    depth = {
        name: [(value or 0.0) / length for value, length in zip(row, seconds, strict=True)]
        for name, row in watch.rows(found, lambda each: each.queued_s).items()
    }
    figure = figures.lines(watch.grid.times, depth, watch.lane_ink)
    return watch.over_time(
        "depth", "Queue depth", depth, figure, "requests waiting, on the mean", empty=NOTHING
    )


def wait_chart(watch: Watch, found: Lanes) -> Chart:
    waits = watch.rows(found, lambda each: each.oldest_wait_s * 1000)
    figure = figures.durations(watch.grid.times, waits, watch.lane_ink)
    seconds = {name: [(v or 0.0) / 1000 for v in row] for name, row in waits.items()}
    note = "of the request at its head, the longest; CSV in seconds"
    return watch.over_time("wait", "Oldest wait", seconds, figure, note, empty=NOTHING)


def rows(watch: Watch, found: Lanes, kept: Mapping[str, Promise]) -> list[dict[str, Any]]:
    whole = sum(max(0.0, each.served) for each in found.values())
    answer: list[dict[str, Any]] = []
    for lane in sorted(watch.document.lanes, key=lambda lane: lane.rank):
        mine = {step: each for (step, (name,)), each in found.items() if name == lane.name}
        if not mine:
            continue
        served = sum(max(0.0, each.served) for each in mine.values())
        promise = kept.get(lane.name)
        answer.append(
            {
                "name": lane.name,
                "colour": watch.lane_ink.colour(lane.name),
                "reserved": lane.reserved_share,
                "served": served,
                "share": served / whole if whole else None,
                "got_waiting": promise.got / promise.of if promise else None,
                "promised": promise.promised / promise.of if promise else None,
                "waited_s": sum(each.queued_s for each in mine.values()),
                "oldest_s": max(each.oldest_wait_s for each in mine.values()),
            }
        )
    return answer
