"""Live state over time: the gateways' samples, added up to minutes, quarters, hours and days.

1. A sample stands for the time until the next one of its gateway, at most `LONGEST_S`; after that
   the gateway is not known to run.
2. Service is how far a tenant's `served` moved between two samples. It starts at nothing with its
   gateway and whenever an idle tenant was forgotten; a correction moves it back.
3. A minute is always counted anew from its samples, as long as those are kept; a longer slot from
   those below. Counting twice changes nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Aggregate, Case, F, Max, Min, Sum, When

from metering.core.cover import DAY, HOUR, MINUTE, QUARTER
from metering.models import GatewaySample
from metering.models_rollup import LiveDay, LiveHour, LiveMinute, LiveQuarter, LiveSlot
from metering.rollup import floor

LONGEST_S = 5.0
MOST_SHOWN = 500  # tenants of a lane in one sample (scheduling.core.figures)
SUMS = (
    "observed_s",
    "queued_s",
    "running_s",
    "waiting_s",
    "served",
    "load_s",
    "max_load_s",
    "max_running_s",
    "endpoints_s",
)
LARGEST = ("oldest_wait_s", "bound", "weight")
FIELDS = (*SUMS, *LARGEST, "debt")
SLOT = ("pool", "lane", "tenant")
LIVE: dict[int, type[LiveSlot]] = {
    MINUTE: LiveMinute,
    QUARTER: LiveQuarter,
    HOUR: LiveHour,
    DAY: LiveDay,
}
BELOW = {QUARTER: MINUTE, HOUR: QUARTER, DAY: HOUR}
MINUTES_A_RUN = 60
A_MINUTE = timedelta(minutes=1)

Slot = tuple[str, str, str]
State = Mapping[str, Any]


def note(at: datetime) -> int:
    """Count the minute that runs, the one before it, and those that a pause left out."""
    this = floor(at, MINUTE)
    known = LiveMinute.objects.order_by("-start").values_list("start", flat=True).first()
    oldest = GatewaySample.objects.order_by("at").values_list("at", flat=True).first()
    if oldest is None:
        return 0
    first = max(floor(oldest, MINUTE), this - MINUTES_A_RUN * A_MINUTE)
    if known:
        first = max(first, known - A_MINUTE)
    minutes = [first + n * A_MINUTE for n in range((this - first) // A_MINUTE + 1)]
    for minute in minutes:
        count_minute(minute)
    for level in BELOW:
        for start in sorted({floor(minute, level) for minute in minutes}):
            count_longer(level, start)
    return len(minutes)


def count_minute(minute: datetime) -> None:
    end = minute + A_MINUTE
    near = GatewaySample.objects.filter(at__gte=minute - timedelta(seconds=LONGEST_S), at__lt=end)
    by_gateway: dict[str, list[tuple[datetime, State]]] = defaultdict(list)
    for gateway, at, state in (
        near.order_by("at", "id").values_list("gateway", "at", "state").iterator()
    ):
        by_gateway[gateway].append((at, state))
    slots: dict[Slot, dict[str, float]] = defaultdict(lambda: dict.fromkeys(FIELDS, 0.0))
    for samples in by_gateway.values():
        _add_gateway(slots, samples, minute, end)
    _save(
        LiveMinute,
        [
            LiveMinute(start=minute, **dict(zip(SLOT, slot, strict=True)), **values)
            for slot, values in slots.items()
        ],
    )


def count_longer(level: int, start: datetime) -> None:
    """A quarter out of its minutes, an hour out of quarters, a day out of hours."""
    below, end = LIVE[BELOW[level]], start + timedelta(seconds=level)
    lowest, highest = Min("debt"), Max("debt")
    sums: dict[str, Aggregate] = {f"all_{name}": Sum(name) for name in SUMS}
    sums |= {f"all_{name}": Max(name) for name in LARGEST}
    found = below._default_manager.filter(start__gte=start, start__lt=end).order_by()
    furthest = Case(When(high__gt=-F("low"), then=F("high")), default=F("low"))
    grouped = found.values(*SLOT).annotate(low=lowest, high=highest, **sums)
    rows = [
        LIVE[level](
            start=start,
            **{name: row[name] for name in SLOT},
            **{name: row[f"all_{name}"] for name in FIELDS},
        )
        for row in grouped.annotate(all_debt=furthest)
    ]
    _save(LIVE[level], rows)


def _save(model: type[LiveSlot], rows: list[Any]) -> None:
    model._default_manager.bulk_create(
        sorted(rows, key=lambda row: (row.pool, row.lane, row.tenant)),
        batch_size=500,
        update_conflicts=True,
        unique_fields=["start", *SLOT],
        update_fields=FIELDS,
    )


def _add_gateway(
    slots: dict[Slot, dict[str, float]],
    samples: Sequence[tuple[datetime, State]],
    since: datetime,
    until: datetime,
) -> None:
    """`samples` may begin before `since`: the last of those tells what had been served by then."""
    before: State | None = None
    for place, (at, state) in enumerate(samples):
        following = samples[place + 1][0] if place + 1 < len(samples) else until
        lasts = min((following - at).total_seconds(), LONGEST_S)
        begun = max(0.0, (since - at).total_seconds())
        for slot, values in _values(state, before if at >= since else state):
            _add(slots[slot], values, max(0.0, lasts - begun))
        before = state


def _add(total: dict[str, float], values: Mapping[str, float], seconds: float) -> None:
    for name in SUMS:
        given = values.get(name, 0.0)
        total[name] += given if name == "served" else given * seconds
    for name in LARGEST:
        total[name] = max(total[name], values.get(name, 0.0))
    if abs(values.get("debt", 0.0)) > abs(total["debt"]):
        total["debt"] = values["debt"]


def _values(state: State, before: State | None) -> Iterator[tuple[Slot, dict[str, float]]]:
    """What each pool, lane and tenant was at one moment; `served` since the sample before."""
    for pool, of_pool in state.get("pools", {}).items():
        old_lanes = _at(before, "pools", pool, "lanes")
        lanes = of_pool.get("lanes", {})
        served = 0.0
        for lane, of_lane in lanes.items():
            values, tenants = _lane(of_lane, old_lanes.get(lane) if old_lanes else None, before)
            served += values["served"]
            yield (pool, lane, ""), values
            for tenant, of_tenant in tenants:
                yield (pool, lane, tenant), of_tenant
        yield (pool, "", ""), _pool(of_pool) | {"served": served}


def _pool(state: State) -> dict[str, float]:
    lanes, usable = (
        state.get("lanes", {}).values(),
        [each for each in state.get("endpoints", {}).values() if each.get("available", True)],
    )
    queued = sum(lane.get("queued", 0) for lane in lanes)
    return {
        "observed_s": 1.0,
        "queued_s": queued,
        "waiting_s": float(queued > 0),
        "running_s": sum(lane.get("running", 0) for lane in lanes),
        "oldest_wait_s": max((lane.get("oldest_wait_s") or 0.0 for lane in lanes), default=0.0),
        "load_s": sum(each.get("load", 0.0) for each in usable),
        "max_load_s": sum(each.get("max_load", 0.0) for each in usable),
        "max_running_s": sum(each.get("max_running", 0) for each in usable),
        "endpoints_s": float(len(usable)),
        "bound": state.get("bound_units") or 0.0,
    }


def _lane(
    state: State, old: State | None, before: State | None
) -> tuple[dict[str, float], list[tuple[str, dict[str, float]]]]:
    known = (old or {}).get("tenants", {})
    tenants = [
        (name, _tenant(each, _served_before(name, each, known, before)))
        for name, each in state.get("tenants", {}).items()
    ]
    queued = state.get("queued", 0)
    values = {
        "observed_s": 1.0,
        "queued_s": queued,
        "waiting_s": float(queued > 0),
        "running_s": state.get("running", 0),
        "oldest_wait_s": state.get("oldest_wait_s") or 0.0,
        "served": sum(of_tenant["served"] for _, of_tenant in tenants),
    }
    busy = [(n, v) for n, v in tenants if v["queued_s"] or v["running_s"] or v["served"]]
    return values, busy


def _tenant(state: State, before: float) -> dict[str, float]:
    queued = state.get("queued", 0)
    return {
        "observed_s": 1.0,
        "queued_s": queued,
        "waiting_s": float(queued > 0),
        "running_s": state.get("running", 0),
        "served": state.get("served", 0.0) - before,
        "debt": state.get("debt") or 0.0,
        "weight": state.get("weight", 0.0),
    }


def _served_before(name: str, state: State, known: State, before: State | None) -> float:
    served: float = state.get("served", 0.0)
    if before is None:
        return served  # the gateway's first sample: what came before it is not known
    old = known.get(name)
    if old is None:
        return 0.0 if len(known) < MOST_SHOWN else served
    idle = not old.get("queued") and not old.get("running")
    then: float = old.get("served", 0.0)
    return 0.0 if idle and served < then else then


def _at(state: State | None, *names: str) -> Mapping[str, Any]:
    for name in names:
        state = (state or {}).get(name)
    return state or {}
