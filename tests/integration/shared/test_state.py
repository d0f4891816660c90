"""The state that gateways share: one budget, a gateway that dies, and a server that does."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gateway.governor import AdmissionRefused, NoPlace, StateLost
from gateway.shared import membership
from gateway.shared import state as shared_state
from metering.restore import Used
from tests.integration.shared.gateways import Start, entry, plan, until
from tests.redis_server import RedisServer

DAILY = {"name": "daily", "kind": "sustained", "cost": 1_000, "period": "day"}
COST = 50.0  # of one request of the cast, estimated


async def test_one_budget_for_all_gateways(start: Start) -> None:
    budgets = {"budgets": [{**DAILY, "cost": 3 * COST}], "places": 9}
    one, two = await start("one", **budgets), await start("two", **budgets)
    tried = [
        gateway.admit(f"{name}{n}") for n in range(4) for name, gateway in (("a", one), ("b", two))
    ]
    ended = await asyncio.gather(*tried, return_exceptions=True)
    refused = [e for e in ended if isinstance(e, AdmissionRefused)]
    assert 1 <= len(ended) - len(refused) <= 3
    for task, gateway in zip(tried, [one, two] * 4, strict=True):
        if not task.exception():
            gateway.state.settle(task.result().grant.request_id, 30, COST)
    while (shown := await one.budget())["reserved"]:  # the other's end is on its way
        await asyncio.sleep(0.02)
    assert shown["used"] == (len(ended) - len(refused)) * COST


async def test_a_place_that_one_gives_back_is_the_others(start: Start) -> None:
    one, two = await start("one", places=1), await start("two", places=1)
    await one.admit("a")
    waits = two.admit("b")
    await until(two.state.scheduler.waiting, "it waits")
    one.state.settle("a", 30, COST)
    assert (await waits).grant.request_id == "b"
    two.state.settle("b", 30, COST)


async def test_who_was_demoted_loses_its_place_in_the_lane_that_it_waited_in(start: Start) -> None:
    one = await start("one", budgets=[{**DAILY, "cost": 1, "on_exhausted": "demote"}], places=1)
    await one.admit("a")
    waits = one.admit("b")
    await until(lambda: [t.lane for t in one.state.scheduler.waiting()] == ["batch"], "it waits")
    one.state.drop("b", "queue_timeout")
    with pytest.raises(NoPlace) as caught:
        await waits
    assert (caught.value.reason, caught.value.lane.name) == ("queue_timeout", "batch")
    one.state.settle("a", 30, COST)


async def test_what_a_dead_gateway_held_is_settled_once_with_its_record(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(membership, "LEASE_S", 1.5)
    monkeypatch.setattr(shared_state, "BEAT_S", 0.2)
    budgets = {"budgets": [DAILY], "places": 2}
    one, two = await start("one", **budgets), await start("two", **budgets)
    await one.admit("asked")
    one.state.asked(entry(plan(one.snapshot, "asked")))
    await one.admit("granted")
    waiting = one.admit("waiting")
    await until(one.state.scheduler.waiting, "one waits")
    held = (await two.budget())["reserved"]
    assert held > 0
    await one.cut_off()
    with pytest.raises(StateLost):
        await waiting
    await until(lambda: two.journal.records, "the dead gateway's record")
    records = two.journal.records
    assert [(r.request_id, r.usage_source, r.throttle_reason) for r in records] == [
        ("asked", "estimated", "gateway_restart")
    ]
    shown = await two.budget_once(lambda shown: not shown["reserved"])
    assert shown["used"] == records[0].cost
    assert (await two.admit("next")).grant.request_id == "next"
    two.state.settle("next", 30, COST)
    await one.reconnect()  # it had only been cut off, and its requests come to their end
    await until(lambda: one.state.name == "shared", "it is back")
    one.state.settle("asked", 30, 70.0)
    one.state.settle("granted", 30, 80.0)
    assert (await one.admit("more")).grant.request_id == "more"
    one.state.settle("more", 30, COST)
    shown = await two.budget_once(lambda shown: not shown["reserved"])
    assert shown["used"] == 70.0 + 80.0 + 2 * COST


async def test_closed_nobody_is_let_in_while_the_server_is_away_and_what_runs_is_settled_after(
    start: Start, redis: RedisServer, ledger: list[Used]
) -> None:
    one = await start("one", budgets=[DAILY], places=1)
    await one.admit("runs")
    waits = one.admit("waits")
    await until(one.state.scheduler.waiting, "it waits")
    redis.kill()
    with pytest.raises(StateLost):
        await waits
    with pytest.raises(StateLost):
        await one.admit("new")
    assert one.state.name == "lost"
    redis.start()
    await until(lambda: one.state.name == "shared", "it is back")
    shown = await one.budget()
    assert shown["reserved"] > 0  # of what still runs
    one.state.settle("runs", 30, 70.0)
    assert (await one.admit("next")).grant.request_id == "next"
    one.state.settle("next", 30, COST)
    shown = await one.budget_once(lambda shown: not shown["reserved"])
    assert shown["used"] == 70.0 + COST


REFUSALS = {
    "its memory is full": ("CONFIG SET maxmemory 1", "CONFIG SET maxmemory 0"),
    "it follows another": ("REPLICAOF 127.0.0.1 1", "REPLICAOF NO ONE"),
    "it lacks followers": (
        "CONFIG SET min-replicas-to-write 1",
        "CONFIG SET min-replicas-to-write 0",
    ),
    "no function may be called": ("ACL SETUSER default -fcall", "ACL SETUSER default +fcall"),
    "no key may be used": ("ACL SETUSER default resetkeys", "ACL SETUSER default allkeys"),
}


WORDS = {
    "its memory is full": "memory is full",
    "it follows another": "follows another",
    "it lacks followers": "min-replicas-to-write",
    "no function may be called": "lacks a right",
    "no key may be used": "lacks a right",
}


@pytest.mark.parametrize("why", REFUSALS)
async def test_a_server_that_answers_and_takes_no_call_is_away_like_one_that_is_silent(
    start: Start, redis: RedisServer, ledger: list[Used], why: str
) -> None:
    """No end of a request is lost to an error: its place and its reservation would be taken for as
    long as this gateway lives."""
    one = await start("one", budgets=[DAILY], places=1)
    await one.admit("runs")
    refuses, takes = REFUSALS[why]
    with redis.client() as client:
        client.execute_command(*refuses.split())
        one.state.settle("runs", 30, 70.0)
        with pytest.raises(StateLost):
            await one.admit("new")
        assert one.state.name == "lost"
        assert WORDS[why] in one.state.trouble  # as doctor and console tell it
        client.execute_command(*takes.split())
    await until(lambda: one.state.name == "shared", "it is back")
    assert not one.state.trouble
    assert (await one.admit("next")).grant.request_id == "next"
    one.state.settle("next", 30, COST)
    shown = await one.budget_once(lambda shown: not shown["reserved"])
    assert shown["used"] == 70.0 + COST


async def test_an_empty_server_is_loaded_from_the_ledger(
    start: Start, redis: RedisServer, ledger: list[Used]
) -> None:
    one = await start("one", budgets=[DAILY])
    ledger.append(Used("alice", one.snapshot.tenants["alice"].budgets[0], 400.0))
    redis.kill()
    redis.start()
    await until(lambda: one.state.name == "shared", "it is back")
    await one.budget_once(lambda shown: shown["used"] == 400.0)


async def test_several_gateways_fill_a_cold_counter_once(
    start: Start, redis: RedisServer, ledger: list[Used]
) -> None:
    """D05."""
    given: dict[str, Any] = {"budgets": [{**DAILY, "cost": 10_000}], "places": 9}
    one, two = await start("one", **given), await start("two", **given)
    ledger.append(Used("alice", one.snapshot.tenants["alice"].budgets[0], 400.0))
    redis.kill()
    redis.start()
    await until(lambda: one.state.name == two.state.name == "shared", "both are back")
    asked = [(one, "a1"), (two, "b1"), (one, "a2"), (two, "b2")]
    await asyncio.gather(*(gateway.admit(id) for gateway, id in asked))
    for gateway, id in asked:
        gateway.state.settle(id, 30, COST)
    shown = await one.budget_once(lambda shown: not shown["reserved"])
    assert shown["used"] == 400.0 + 4 * COST


async def test_a_counter_that_stays_below_the_ledger_is_raised(
    start: Start, ledger: list[Used]
) -> None:
    one = await start("one", budgets=[DAILY])
    ledger.append(Used("alice", one.snapshot.tenants["alice"].budgets[0], 25.0))
    await one.budget_once(lambda shown: shown["used"] == 25.0)


async def test_open_each_goes_on_with_its_part_and_hands_over_what_it_let_in(
    start: Start, redis: RedisServer, ledger: list[Used]
) -> None:
    given: dict[str, Any] = {"opens": True, "budgets": [{**DAILY, "cost": 9_000}], "places": 4}
    one, two = await start("one", **given), await start("two", **given)
    await until(lambda: len(one.state._members.live) == 2, "both are seen")
    await one.admit("before")
    redis.kill()
    await until(lambda: one.state.name == two.state.name == "apart", "both are apart")
    await one.admit("apart")  # two of four places are its own, and one is taken
    waits = one.admit("waits")
    await until(lambda: one.state._apart.scheduler.waiting(), "it waits")
    await asyncio.gather(two.admit("its-1"), two.admit("its-2"))
    redis.start()
    await until(lambda: one.state.name == two.state.name == "shared", "both are back")
    four = {"before", "apart", "its-1", "its-2"}
    for gateway, ids in ((one, ("before", "apart")), (two, ("its-1", "its-2"))):
        for id in ids:
            gateway.state.settle(id, 30, COST)
    assert (await waits).grant.request_id == "waits"
    one.state.settle("waits", 30, COST)
    shown = await one.budget_once(lambda shown: not shown["reserved"])
    assert shown["used"] == (len(four) + 1) * COST
