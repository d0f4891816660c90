"""Lanes over time: what each got against what is reserved for it, its queue, its oldest wait."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from metering.dashboards import figures
from metering.dashboards.charts import Chart
from metering.dashboards.watching import Board, Watch
from metering.live_history import Past

NOTHING = "A gateway tells of its lanes while it runs; none did in this range."


def lanes_board(watch: Watch) -> Board:
    found = watch.past("lane", "lane")
    return Board(
        [
            share_chart(watch, found),
            reserved_chart(watch, found),
            depth_chart(watch, found),
            wait_chart(watch, found),
        ],
        {"rows": rows(watch, found), "lane_ink": watch.lane_ink},
    )


Lanes = Mapping[tuple[int, tuple[str, ...]], Past]


def share_chart(watch: Watch, found: Lanes) -> Chart:
    served = watch.rows(found, lambda each: max(0.0, each.served))
    figure = figures.stacked(watch.grid.times, served, watch.lane_ink, "units", percent=True)
    return watch.over_time(
        "share", "Share of service", served, figure, "of all units served", empty=NOTHING
    )


def reserved_chart(watch: Watch, found: Lanes) -> Chart:
    """What a lane got while it waited: only then is its share promised."""
    lanes = sorted(watch.document.lanes, key=lambda lane: lane.rank)
    asked = [each for each in lanes if watch.filters.lane in ("", each.name)]
    parts = {each["name"]: each for each in rows(watch, found)}
    names = [lane.name for lane in asked if lane.name in parts]
    got = [_percent(parts[name]["got_waiting"]) for name in names]
    reserved = [100 * lane.reserved_share for lane in asked if lane.name in parts]
    figure = figures.pairs(names, {"got": got, "reserved": reserved}, watch.lane_ink)
    rows_of = list(zip(names, got, reserved, strict=True))
    note = "filled: got while it waited; outlined: reserved, for as much as a lane asks"
    header = ("lane", "got_percent", "reserved_percent")
    return Chart("reserved", "Share against reserved share", figure, header, rows_of, note, NOTHING)


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


def rows(watch: Watch, found: Lanes) -> list[dict[str, Any]]:
    served_in: dict[int, float] = {}
    for (step, _), each in found.items():
        served_in[step] = served_in.get(step, 0.0) + max(0.0, each.served)
    whole = sum(served_in.values())
    answer: list[dict[str, Any]] = []
    for lane in sorted(watch.document.lanes, key=lambda lane: lane.rank):
        mine = {step: each for (step, (name,)), each in found.items() if name == lane.name}
        if not mine:
            continue
        served = sum(max(0.0, each.served) for each in mine.values())
        while_waiting = {step: each for step, each in mine.items() if each.waiting_s}
        got = sum(max(0.0, each.served) for each in while_waiting.values())
        of = sum(served_in[step] for step in while_waiting)
        answer.append(
            {
                "name": lane.name,
                "colour": watch.lane_ink.colour(lane.name),
                "reserved": lane.reserved_share,
                "served": served,
                "share": served / whole if whole else None,
                "got_waiting": got / of if of else None,
                "waited_s": sum(each.queued_s for each in mine.values()),
                "oldest_s": max(each.oldest_wait_s for each in mine.values()),
            }
        )
    return answer


def _percent(part: object) -> float | None:
    return 100 * part if isinstance(part, float) else None
