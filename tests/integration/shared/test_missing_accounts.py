"""Whichever key of a tenant's accounts is deleted, what is held is counted again, every reservation
comes back, and the budget is the ledger's."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import pytest

from gateway.shared import membership
from gateway.shared import state as shared_state
from metering.core.record import UsageRecord
from metering.models import UsageRow
from metering.restore import Used
from metering.shared.library import STATE, prefix
from tests.integration.shared.gateways import PATIENCE_S, Gateway, Start, entry, plan, until
from tests.redis_server import RedisServer

ACCOUNT = "tenant:alice/daily"
DAILY = {"name": "daily", "kind": "sustained", "cost": 10_000, "period": "day"}
BURST = {"name": "burst", "kind": "burst", "cost": 10_000, "refill_per_second": 1}
COST = 50.0  # of one request of the cast, estimated
OWN = prefix("alice")
KINDS = (
    f"{OWN}use",
    f"{OWN}open",
    f"{OWN}window:{ACCOUNT}",
    f"{OWN}burst:tenant:alice/burst",
    f"{STATE}alive",
    f"{STATE}loaded",
    f"{STATE}seen",
)


def of_ledger(gateway: Gateway, used: float) -> Used:
    budgets = gateway.snapshot.tenants["alice"].budgets
    return Used("alice", next(b for b in budgets if b.account == ACCOUNT), used)


def row(request_id: str, cost: float) -> UsageRow:
    now = datetime.now(UTC)
    return UsageRow(request_id=request_id, at=now, tenant="alice", cost=cost, accounts=[ACCOUNT])


async def held(gateway: Gateway) -> tuple[float, float]:
    """Used and held, of the budget of a day."""
    budgets = gateway.snapshot.tenants["alice"].budgets
    found = await gateway.state.accounts.budgets({"alice": budgets}, datetime.now(UTC))
    shown = next(one for one in found["alice"] if one["account"] == ACCOUNT)
    return shown["used"], shown["reserved"]


async def held_once(gateway: Gateway, expected: tuple[float, float]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while await held(gateway) != expected:
            await asyncio.sleep(0.02)


async def two_gateways(start: Start) -> tuple[Gateway, Gateway]:
    given = {"budgets": [DAILY, BURST], "places": 9}
    one, two = await start("one", **given), await start("two", **given)
    await until(lambda: len(one.state._members.live) == 2, "both are seen")
    return one, two


@pytest.mark.parametrize("key", KINDS)
async def test_whichever_key_is_deleted_reservations_come_back_and_the_budget_is_the_ledgers(
    start: Start, redis: RedisServer, ledger: list[Used], key: str
) -> None:
    one, two = await two_gateways(start)
    await one.admit("before")
    one.state.settle("before", 30, 70.0)
    ledger.append(of_ledger(one, 70.0))
    await one.admit("a")
    await two.admit("b")
    both = (await held(one))[1]
    await held_once(one, (70.0, both))
    with redis.client() as client:
        assert client.delete(key)
        await held_once(one, (70.0, both))
        await two.admit("c")
        two.state.settle("c", 30, COST)
        one.state.settle("a", 30, 80.0)
        two.state.settle("b", 30, 90.0)
        ledger[:] = [of_ledger(one, 70.0 + COST + 80.0 + 90.0)]
        await held_once(one, (70.0 + COST + 80.0 + 90.0, 0.0))
        await until(lambda: not client.exists(f"{OWN}open"), "nothing is open")


async def dead_with_one_asked(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> tuple[Gateway, Gateway]:
    monkeypatch.setattr(membership, "LEASE_S", 1.5)
    monkeypatch.setattr(shared_state, "BEAT_S", 0.2)
    one, two = await two_gateways(start)
    await one.admit("asked")
    one.state.asked(entry(plan(one.snapshot, "asked")))
    await until(lambda: not one.state.scheduler.link.pending, "it is told")
    await one.cut_off()
    return one, two


@pytest.mark.parametrize("cost", [20.0, 70.0])
async def test_what_was_settled_by_its_estimate_is_settled_by_its_record_when_that_is_found(
    start: Start,
    ledger: list[Used],
    ended: dict[str, UsageRow],
    monkeypatch: pytest.MonkeyPatch,
    cost: float,
) -> None:
    """The dead gateway had written how it ended, and had not told the server; its journal is
    recovered later."""
    _, two = await dead_with_one_asked(start, monkeypatch)
    [guess] = await until(lambda: two.journal.records, "it is taken for dead")
    assert isinstance(guess, UsageRecord)
    assert guess.is_guess
    ledger.append(of_ledger(two, guess.cost))
    await held_once(two, (guess.cost, 0.0))
    ledger[:] = [of_ledger(two, cost)]
    ended["asked"] = row("asked", cost)
    await held_once(two, (cost, 0.0))
    await two.admit("more")
    two.state.settle("more", 30, COST)
    ledger[:] = [of_ledger(two, cost + COST)]
    await held_once(two, (cost + COST, 0.0))


async def test_a_record_that_the_ledger_has_before_its_gateway_is_taken_for_dead_counts_once(
    start: Start,
    redis: RedisServer,
    ledger: list[Used],
    ended: dict[str, UsageRow],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It was started anew at once, and had its journal recovered."""
    monkeypatch.setattr(membership, "LEASE_S", 1.5)
    _, two = await dead_with_one_asked(start, monkeypatch)
    ledger.append(of_ledger(two, 70.0))
    ended["asked"] = row("asked", 70.0)
    assert (await held(two))[0] == 0.0
    await until(lambda: two.journal.records, "it is taken for dead")
    await held_once(two, (70.0, 0.0))
    for _ in range(5):
        await two.state._books.follow(two.snapshot)
    assert await held(two) == (70.0, 0.0)


async def test_what_no_known_gateway_holds_is_ended(
    start: Start, redis: RedisServer, ledger: list[Used], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A gateway died, and the list that it stood on is gone before that was noticed."""
    one, two = await two_gateways(start)
    await one.admit("asked")
    one.state.asked(entry(plan(one.snapshot, "asked")))
    await until(lambda: not one.state.scheduler.link.pending, "it is told")
    await one.cut_off()
    with redis.client() as client:
        client.delete(f"{STATE}alive")
    await until(lambda: two.journal.records, "it is ended")
    await held_once(two, (COST, 0.0))
