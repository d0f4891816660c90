# ruff: noqa: E402  Django must be set up before what needs its models is imported
"""Ninety days of use by forty tenants, with every roll-up: ten million records at full size.

    FAIRLANE_DATA_DIR=/tmp/usage SECRET_KEY=x .venv/bin/python -m tests.bench.seed_usage
    … --records 1000000 --days 90

fills an empty database (DATABASE_URL, or SQLite in FAIRLANE_DATA_DIR). Records go in by COPY or
executemany; roll-ups are made by the product's own code, as after a long pause of its worker; so
are the hours of live state. `tests.bench.dashboards` measures on it.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "fairlane.settings")

import django

django.setup()

from django.core.management import call_command
from django.db import connection, transaction

from metering import partitions
from metering.core.cover import DAY, QUARTER
from metering.history import FIELDS as LIVE
from metering.history import SLOT, count_longer
from metering.models import LiveHour, LiveMinute, TouchedQuarter, UsageRow
from metering.rollup import floor, oldest_minute, roll_up_quarters, roll_up_range
from metering.store_postgres import FIELDS
from tests import builders

TENANTS = 40
COLUMNS = tuple(name for name in FIELDS)
BATCH = 20_000
POOLS = ("demo-chat", "org/code-7b")
REASONS = ("requests_per_minute", "tokens_per_minute", "max_running", "queue_timeout")


def policy() -> dict[str, Any]:
    document = builders.policy()
    document["tenants"] = [
        {
            "name": f"tenant-{n:02}",
            "tier": "gold",
            "weight": 1 + n % 5,
            "applications": [{"name": "chat"}, {"name": "nightly", "lane": "async-batch"}],
        }
        for n in range(TENANTS)
    ]
    return document


def records(count: int, days: int, until: datetime) -> Iterator[tuple[Any, ...]]:
    """In the order of time; by day and by night, with larger and smaller tenants."""
    draw = random.Random(11)
    step = timedelta(days=days) / count
    at = until - timedelta(days=days)
    names = [f"tenant-{n:02}" for n in range(TENANTS)]
    sizes = [1 / (1 + n) ** 0.7 for n in range(TENANTS)]
    for start in range(0, count, BATCH):
        for place, tenant in enumerate(draw.choices(names, sizes, k=min(BATCH, count - start))):
            at += step
            yield record(draw, start + place, at, tenant)


def record(draw: random.Random, number: int, at: datetime, tenant: str) -> tuple[Any, ...]:
    nightly = number % 4 == 0
    lane = "async-batch" if nightly else "interactive-standard"
    same = (f"b{number:012}", at, tenant, ("chat", "nightly")[nightly], f"k-{tenant}-{number % 2}")
    place = (POOLS[number % 5 == 0], lane, "")
    if draw.random() < 0.04:
        reason = REASONS[number % 4]
        refused = (0, 0, 0, "counted", 0.0, 900.0, 0.0, None, 0.4, 429, "throttled", reason, 1)
        return (*same, *place, "", *refused, "[]")
    prompt, output = int(draw.expovariate(1 / 900)) + 1, int(draw.expovariate(1 / 220)) + 2
    queue = draw.expovariate(1 / 400)
    ttft = queue + draw.uniform(40, 240)
    cost = prompt + 2.0 * output
    whole = ttft + output * draw.uniform(9, 14)
    counted = (prompt, prompt // 3, output, "engine", cost, cost, queue, ttft, whole)
    return (*same, *place, "http://127.0.0.1:9101/v1", *counted, 200, "stop", "", 1, "[]")


def insert(rows: Iterator[tuple[Any, ...]], count: int) -> None:
    names = ", ".join(f'"{name}"' for name in COLUMNS)
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            copy = f"COPY metering_usagerow ({names}) FROM STDIN"
            with cursor.copy(copy) as stream:  # type: ignore[attr-defined]
                for row in rows:
                    stream.write_row(row)
        return
    places = ", ".join(["%s"] * len(COLUMNS))
    sql = f"INSERT INTO metering_usagerow ({names}) VALUES ({places})"
    batch: list[tuple[Any, ...]] = []
    for number, row in enumerate(rows, 1):
        batch.append((row[0], row[1].isoformat(" ")[:-6], *row[2:]))
        if len(batch) == BATCH or number == count:
            with transaction.atomic(), connection.cursor() as cursor:
                cursor.executemany(sql, batch)
            batch.clear()


def seed_live(days: int, until: datetime) -> None:
    """Minutes as long as those are kept, hours before: tenants that wait and are served."""
    oldest = oldest_minute(until)
    hours = [floor(until, 3600) - timedelta(hours=n) for n in range(days * 24)]
    minutes = [
        oldest + timedelta(minutes=n) for n in range(int((until - oldest).total_seconds() // 60))
    ]
    when = connection.ops.adapt_datetimefield_value
    names = ("start", *SLOT, *LIVE)
    for model, starts, seconds in ((LiveHour, hours, 3600.0), (LiveMinute, minutes, 60.0)):
        sql = f"INSERT INTO {model._meta.db_table} ({', '.join(names)}) VALUES "
        sql += f"({', '.join(['%s'] * len(names))})"
        rows = ((when(start), *slot) for start, *slot in live_rows(starts, seconds))
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.executemany(sql, list(rows))
    for level, starts in ((QUARTER, minutes), (DAY, hours)):
        for start in sorted({floor(each, level) for each in starts}):
            count_longer(level, start)


def live_rows(starts: list[datetime], seconds: float) -> Iterator[list[Any]]:
    draw = random.Random(5)
    for start in starts:
        for pool in POOLS:
            whole = 0.0
            for lane in ("interactive-standard", "async-batch"):
                inside = 0.0
                for n in draw.sample(range(TENANTS), 10):
                    inside += (served := draw.uniform(10, 400) * seconds)
                    values = waiting(draw, seconds) | {"served": served, "weight": 1 + n % 5}
                    yield slot(start, pool, lane, f"tenant-{n:02}", values)
                whole += inside
                yield slot(start, pool, lane, "", busy(seconds) | {"served": inside})
            values = busy(seconds) | {"served": whole, "bound": 12_000.0}
            yield slot(start, pool, "", "", values)


def slot(start: datetime, pool: str, lane: str, tenant: str, values: dict[str, float]) -> list[Any]:
    return [start, pool, lane, tenant, *(values.get(name, 0.0) for name in LIVE)]


def waiting(draw: random.Random, seconds: float) -> dict[str, float]:
    part = draw.random()
    return {
        "observed_s": seconds,
        "queued_s": part * 3 * seconds,
        "waiting_s": part * seconds,
        "running_s": seconds,
        "debt": draw.uniform(-9000, 9000),
    }


def busy(seconds: float) -> dict[str, float]:
    return {
        "observed_s": seconds,
        "queued_s": 8 * seconds,
        "waiting_s": 0.7 * seconds,
        "running_s": 12 * seconds,
        "load_s": 40_000 * seconds,
        "max_load_s": 60_000 * seconds,
        "max_running_s": 16 * seconds,
        "endpoints_s": 2 * seconds,
        "oldest_wait_s": 3.0,
    }


def seed(count: int, days: int, until: datetime | None = None) -> None:
    """Raises: SystemExit, where the database is not empty."""
    until = floor(until or datetime.now(UTC), 60)
    call_command("migrate", verbosity=0)
    if UsageRow.objects.exists():
        raise SystemExit("there are usage records already; it takes an empty database")
    builders.apply_policy(policy())
    if partitions.used():
        partitions.make(until - timedelta(days=n) for n in range(days, -1, -1))
    begun = time.monotonic()
    insert(records(count, days, until), count)
    told("records", begun)
    begun = time.monotonic()
    roll_up_range(oldest_minute(until), until)
    told("minutes, and what is above them", begun)
    begun = time.monotonic()
    older(days, until)
    told("quarters, hours and days of what is older", begun)
    begun = time.monotonic()
    seed_live(days, until)
    told("live state", begun)
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("VACUUM ANALYZE")


def older(days: int, until: datetime) -> None:
    oldest, at = oldest_minute(until), floor(until - timedelta(days=days), QUARTER)
    quarters = []
    while at < oldest:
        quarters.append(TouchedQuarter(quarter=at))
        at += timedelta(seconds=QUARTER)
    TouchedQuarter.objects.bulk_create(quarters, batch_size=500)
    while roll_up_quarters():
        pass


def told(what: str, begun: float) -> None:
    print(f"{what}: {time.monotonic() - begun:.0f} s", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--records", type=int, default=10_000_000)
    parser.add_argument("--days", type=int, default=90)
    options = parser.parse_args()
    seed(options.records, options.days)
    return 0


if __name__ == "__main__":
    sys.exit(main())
