"""Rows of the project's cases that need a clock set by hand or a fault at an exact moment: through
the whole of the gateway's own code, with accounts and scheduler as they are (docs/cases.md)."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from gateway import calls
from tests.unit.gateway.cast import snapshot
from tests.unit.gateway.world import World, streamed, whole
from tests.unit.wire.frames import token

COST = 18.0  # of `whole()`


def budget(cost: float, **more: Any) -> dict[str, Any]:
    return {"name": "cap", "kind": "sustained", "cost": cost, "period": "day", **more}


class Clock:
    """What `calls` takes for `datetime`."""

    def __init__(self, at: datetime) -> None:
        self.at = at

    def now(self, zone: Any = None) -> datetime:
        return self.at.astimezone(zone)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock(datetime(2026, 11, 29, 12, tzinfo=UTC))
    monkeypatch.setattr(calls, "datetime", made)
    return made


@pytest.mark.parametrize(
    ("zone", "day"),
    [
        ("Asia/Tokyo", (2026, 6, 3)),
        ("Europe/Berlin", (2026, 3, 28)),
        ("Europe/Berlin", (2026, 3, 29)),
        ("Europe/Berlin", (2026, 10, 24)),
        ("Europe/Berlin", (2026, 10, 25)),
    ],
)
async def test_a_daily_budget_begins_anew_at_the_tenants_midnight(
    clock: Clock, zone: str, day: tuple[int, int, int]
) -> None:
    """D10: also in the nights when clocks change."""
    world = World(snapshot(alice={"timezone": zone, "budgets": [budget(COST)]}))
    midnight = datetime(*day, tzinfo=ZoneInfo(zone)) + timedelta(days=1)  # of local time
    midnight = midnight.astimezone(UTC)
    clock.at = midnight - timedelta(hours=10)
    assert (await world.ask(max_tokens=4)).status == 200
    clock.at = midnight - timedelta(seconds=1)
    refused = await world.ask(max_tokens=4)
    assert (refused.status, refused.error["code"]) == (429, "insufficient_quota")
    assert refused.headers["retry-after"] == "1"
    clock.at = midnight + timedelta(seconds=1)
    assert (await world.ask(max_tokens=4)).status == 200


async def test_a_budget_accumulates_in_its_window_and_its_end_stands_still(clock: Clock) -> None:
    """R17: it is no rate that refills."""
    world = World(snapshot(alice={"budgets": [budget(1000)]}))
    policies = world.calls.snapshot.tenants["alice"].budgets
    seen = []
    for minute in range(10):
        clock.at = datetime(2026, 11, 29, 12, minute * 5, tzinfo=UTC)
        assert (await world.ask(max_tokens=4)).status == 200
        [shown] = world.accounts.budgets(policies, 0.0, clock.at)
        seen.append((shown["remaining"], shown["resets_at"]))
    assert seen == [(1000 - COST * (n + 1), "2026-11-30T00:00:00Z") for n in range(10)]


async def test_a_minute_that_was_tripped_is_over_when_it_was_said_to_be(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """R19: nobody is locked out for longer."""
    now = 1000.0
    world = World(snapshot(alice={"limits": {"requests_per_minute": 1}}))
    monkeypatch.setattr(world.calls._governor, "_clock", lambda: now)
    assert (await world.ask()).status == 200
    refused = await world.ask()
    now += int(refused.headers["retry-after"]) - 2
    assert (await world.ask()).status == 429
    now += 2
    assert (await world.ask()).status == 200


async def test_an_alert_is_of_the_budget_that_is_named_and_silent_while_it_has_room() -> None:
    """R24: 0.4 of 100 in a month is no 99%."""
    monthly = budget(COST * 250, period="month", on_exhausted="alert")
    world = World(snapshot(alice={"budgets": [monthly]}))
    await world.ask(max_tokens=4)
    assert world.calls.alerts.take() == {}
    tight = budget(COST, period="month", on_exhausted="alert")
    world = World(snapshot(alice={"budgets": [tight]}))
    assert [(await world.ask(max_tokens=4)).status for _ in range(2)] == [200, 200]
    assert list(world.calls.alerts.take()) == ["tenant:alice/cap"]


async def test_enforcement_needs_no_report() -> None:
    """R18: there is no ledger here, no roll-up and no page; the budget trips all the same."""
    world = World(snapshot(alice={"budgets": [budget(COST * 3)]}))
    statuses = [(await world.ask(max_tokens=4)).status for _ in range(6)]
    assert statuses == [200] * 3 + [429] * 3


@pytest.mark.parametrize("stream", [False, True])
async def test_a_cancel_in_the_middle_of_the_end_frees_the_slot_once(
    monkeypatch: pytest.MonkeyPatch, stream: bool
) -> None:
    """R03: the caller leaves at the very moment at which its call is being settled."""
    world = World(snapshot(alice={"limits": {"max_running": 1}}))
    ended = world.journal.ended

    def leave_first(record: Any) -> None:
        caller.task.cancel()
        ended(record)

    monkeypatch.setattr(world.journal, "ended", leave_first)
    reply = streamed(token(), then="break") if stream else whole()
    caller = world.call(reply, stream=stream)
    await asyncio.wait({caller.task}, timeout=10)
    assert world.is_empty
    assert len(world.journal.records) == 1
    monkeypatch.setattr(world.journal, "ended", ended)
    assert (await world.ask()).status == 200
