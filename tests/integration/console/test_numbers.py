"""Pages show what the ledger holds, to the unit: in three zones, over changes of the clocks, and
whatever part of it is rolled up. Everything is computed here from the records alone."""

from __future__ import annotations

import csv
import io
import random
from collections import defaultdict
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from django.test import Client

from metering.models import TouchedMinute, UsageRow
from metering.tasks import roll_up
from tests import builders

pytestmark = [pytest.mark.django_db, pytest.mark.store]

SINCE = datetime(2026, 10, 23, tzinfo=UTC)
UNTIL = datetime(2026, 11, 4, tzinfo=UTC)  # Berlin's clocks go back on 25 October, New York's on 1
ZONES = ("UTC", "Europe/Berlin", "America/New_York", "Asia/Kathmandu")
PRICES = {1: ("0.20", "0.80"), 2: ("0.25", "1.00")}  # by revision; the second one is set below
TENANTS = ("acme", "globex", "initech")
REASONS = ("requests_per_minute", "max_running", "tenant:acme/hourly")


def make_row(draw: random.Random, number: int) -> UsageRow:
    at = SINCE + timedelta(seconds=draw.uniform(0, (UNTIL - SINCE).total_seconds()))
    row = UsageRow(
        request_id=f"n{number}",
        at=at,
        tenant=draw.choice(TENANTS),
        application=draw.choice(("bot", "nightly", "")),
        key=draw.choice(("k1", "k2")),
        model=draw.choice(("demo-chat", "org/code-7b")),
        lane=draw.choice(builders.LANES),
        policy_revision=draw.choice((1, 2)),
    )
    if draw.random() < 0.15:
        row.status, row.finish_reason = 429, "throttled"
        row.throttle_reason = draw.choice(REASONS)
        return row
    row.prompt_tokens, row.completion_tokens = draw.randrange(1, 4000), draw.randrange(0, 900)
    row.cached_tokens = draw.randrange(0, row.prompt_tokens + 1)
    row.cost = row.prompt_tokens + 2.0 * row.completion_tokens
    row.queue_ms = draw.lognormvariate(5, 1.5)
    row.ttft_ms = row.queue_ms + draw.uniform(20, 400)
    row.e2e_ms = row.ttft_ms + 11.0 * row.completion_tokens
    return row


@pytest.fixture(params=["all rolled up", "late records wait", "nothing above the minute"])
def ledger(people: dict[str, Any], request: pytest.FixtureRequest, settings: Any) -> list[UsageRow]:
    if request.param != "all rolled up":  # else nothing finer than quarters is kept of that time
        settings.FAIRLANE_KEEP_MINUTES_DAYS = (datetime.now(UTC) - SINCE).days + 2
    dearer = builders.policy()
    prices = dict(zip(("input_per_million", "output_per_million"), PRICES[2], strict=True))
    dearer["pools"][0]["price"] |= prices
    builders.apply_policy(dearer, "Dearer")
    draw = random.Random(20261125)
    rows = [make_row(draw, number) for number in range(450)]
    late = rows[-3:] if request.param == "late records wait" else []
    early = [row for row in rows if row not in late]
    UsageRow.objects.bulk_create(early, batch_size=500)
    if request.param == "nothing above the minute":
        mark(early)
        while roll_up():
            pass
    else:
        builders.count_minutes([row.at for row in early])
    UsageRow.objects.bulk_create(late)
    mark(late)
    return rows


def mark(rows: Iterable[UsageRow]) -> None:
    minutes = {row.at.replace(second=0, microsecond=0) for row in rows}
    TouchedMinute.objects.bulk_create(TouchedMinute(minute=minute) for minute in minutes)


def table(client: Client, address: str) -> list[dict[str, str]]:
    answer = client.get(address)
    assert answer.status_code == 200
    assert answer["content-type"].startswith("text/csv")
    return list(csv.DictReader(io.StringIO(answer.content.decode())))


def money(rows: Iterable[UsageRow]) -> Decimal:
    whole = Decimal()
    for row in rows:
        if row.model == "demo-chat":
            for tokens, price in zip(
                (row.prompt_tokens, row.completion_tokens), PRICES[row.policy_revision], strict=True
            ):
                whole += Decimal(price) * tokens / 10**6
    return whole


def expected(rows: list[UsageRow]) -> dict[str, int | Decimal]:
    return {
        "requests": len(rows),
        "throttled": sum(row.status == 429 for row in rows),
        "prompt_tokens": sum(row.prompt_tokens for row in rows),
        "cached_tokens": sum(row.cached_tokens for row in rows),
        "completion_tokens": sum(row.completion_tokens for row in rows),
        "cost": int(sum(row.cost for row in rows)),
        "money": money(rows),
    }


def told(line: dict[str, str]) -> dict[str, int | Decimal]:
    amount, _, currency = line["money"].partition(" ")
    assert currency in ("USD", "")
    numbers: dict[str, int | Decimal] = {
        name: int(value) for name, value in line.items() if name in expected([]) and name != "money"
    }
    return numbers | {"money": Decimal(amount or 0)}


def grouped(
    rows: Iterable[UsageRow], by: Callable[[UsageRow], str]
) -> dict[str, dict[str, int | Decimal]]:
    groups: dict[str, list[UsageRow]] = defaultdict(list)
    for row in rows:
        groups[by(row)].append(row)
    return {name: expected(found) for name, found in groups.items()}


def test_days_applications_models_and_keys_equal_the_records_in_each_zone(
    ledger: list[UsageRow], admin: Client
) -> None:
    for zone in ZONES:
        admin.cookies["tz"] = zone
        here = ZoneInfo(zone)
        # Days of the viewer's, from a first midnight to a last one.
        since, until = datetime(2026, 10, 24, tzinfo=here), datetime(2026, 11, 3, tzinfo=here)
        mine = [row for row in ledger if row.tenant == "acme" and since <= row.at < until]
        asked = f"/usage/?tenant=acme&since={stamp(since)}&until={stamp(until)}"
        for name, by in {
            "day": lambda row, here=here: f"{row.at.astimezone(here):%Y-%m-%d}",
            "application": lambda row: row.application,
            "model": lambda row: row.model,
            "key": lambda row: row.key,
        }.items():
            lines = table(admin, f"{asked}&csv={name}s")
            assert {line[name]: told(line) for line in lines} == grouped(mine, by), (zone, name)


def test_one_day_is_that_day_alone(ledger: list[UsageRow], admin: Client) -> None:
    """D20; the day of 25 hours too, as its viewer picks it: without an offset."""
    admin.cookies["tz"] = "Europe/Berlin"
    here = ZoneInfo("Europe/Berlin")
    since, until = datetime(2026, 10, 25, tzinfo=here), datetime(2026, 10, 26, tzinfo=here)
    assert until.timestamp() - since.timestamp() == 25 * 3600
    picked = "/usage/?tenant=acme&since=2026-10-25T00:00&until=2026-10-26T00:00&csv=days"
    moved = admin.get(picked)
    assert "since=2026-10-24T22%3A00Z&until=2026-10-25T23%3A00Z" in moved["location"]
    (line,) = table(admin, moved["location"])
    mine = [row for row in ledger if row.tenant == "acme" and since <= row.at < until]
    assert (line["day"], told(line)) == ("2026-10-25", expected(mine))


@pytest.mark.parametrize("ledger", ["late records wait"], indirect=True)
def test_the_operators_charts_equal_the_records_step_by_step(
    ledger: list[UsageRow], admin: Client
) -> None:
    since, until = SINCE + timedelta(hours=5, minutes=45), SINCE + timedelta(days=6)
    asked = f"since={stamp(since)}&until={stamp(until)}"
    lines = table(admin, f"/?{asked}&csv=tokens")
    steps = [datetime.fromisoformat(line["at"]) for line in lines]
    for line, at, following in zip(lines, steps, [*steps[1:], until], strict=True):
        for tenant in TENANTS:
            tokens = sum(
                row.prompt_tokens + row.completion_tokens
                for row in ledger
                if row.tenant == tenant and at <= row.at < following
            )
            assert int(line[tenant]) == tokens, (at, tenant)
    refused = table(admin, f"/watch/throttles/?{asked}&csv=limits")
    within = [row for row in ledger if since <= row.at < until]
    assert sum(int(line["requests"]) for line in refused) == sum(r.status == 429 for r in within)
    for field, value in (("lane", builders.LANES[0]), ("pool", "demo-chat"), ("tenant", "globex")):
        lines = table(admin, f"/?{asked}&{field}={value}&csv=tokens")
        column = {"pool": "model"}.get(field, field)
        mine = [row for row in within if getattr(row, column) == value]
        shown = sum(int(v) for line in lines for name, v in line.items() if name != "at")
        assert shown == sum(row.prompt_tokens + row.completion_tokens for row in mine)


@pytest.mark.parametrize("ledger", ["late records wait"], indirect=True)
def test_p95_is_within_one_percent_of_the_exact_one(ledger: list[UsageRow], admin: Client) -> None:
    asked = f"since={stamp(SINCE)}&until={stamp(UNTIL)}"
    rows = {row["name"]: row for row in admin.get(f"/watch/latency/?{asked}").context["rows"]}
    for tenant in TENANTS:
        served = [row for row in ledger if row.tenant == tenant and row.status == 200]
        token_ms = [
            (row.e2e_ms - row.ttft_ms) / (row.completion_tokens - 1)
            for row in served
            if row.ttft_ms is not None and row.completion_tokens > 1
        ]
        for field, values in {
            "queue_ms": [row.queue_ms for row in served],
            "ttft_ms": [row.ttft_ms or 0.0 for row in served],
            "e2e_ms": [row.e2e_ms for row in served],
            "tpot_ms": token_ms,
        }.items():
            for part in (50, 95):
                exact = sorted(values)[int(part / 100 * (len(values) - 1))]
                assert rows[tenant][f"{field}_{part}"] == pytest.approx(exact, rel=0.01)


def stamp(at: datetime) -> str:
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
