"""Interactions, soft limits, and budgets that demote or alert, through whole calls."""

from __future__ import annotations

from typing import Any

from tests.unit.gateway.cast import A, snapshot
from tests.unit.gateway.world import World, never, whole

ONE_A_MINUTE = {"requests_per_minute": 1}
ONE_SLOT = {
    "endpoints": [{"url": A}],
    "capacity": {"max_running": 1, "max_running_tokens": 100_000},
}


def named(name: str) -> dict[str, str]:
    return {"x-fairlane-interaction": name}


def budget(**fields: Any) -> dict[str, Any]:
    return {"name": "hourly", "kind": "sustained", "cost": 10, "period": "hour", **fields}


async def test_an_interaction_is_throttled_at_its_first_call_and_not_in_its_middle() -> None:
    world = World(snapshot(alice={"limits": ONE_A_MINUTE}))
    statuses = [(await world.ask(headers=named("i"))).status for _ in range(5)]
    assert statuses == [200] * 5
    assert (await world.ask(headers=named("j"))).status == 429
    assert (await world.ask()).status == 429
    assert {record.interaction for record in world.journal.records} == {"i", "j", ""}
    assert world.is_empty


async def test_a_refused_interaction_stays_refused_though_it_asks_again() -> None:
    world = World(snapshot(alice={"limits": {"requests_per_minute": 0}}))
    assert [(await world.ask(headers=named("i"))).status for _ in range(3)] == [429] * 3


async def test_an_id_of_one_tenant_opens_nothing_for_another() -> None:
    world = World(snapshot())
    for tenant in ("alice", "bob"):
        await world.ask(headers=named("i"), key=tenant)
    limited = World(snapshot(alice={"limits": ONE_A_MINUTE}))
    await limited.ask(headers=named("i"), key="bob")
    await limited.ask()
    assert (await limited.ask(headers=named("i"))).status == 429


async def test_hard_walls_hold_in_the_middle_of_an_interaction() -> None:
    world = World(snapshot(alice={"budgets": [budget(cost=15)]}))
    assert (await world.ask(whole(12, 3), headers=named("i"))).status == 200
    later = await world.ask(headers=named("i"))
    assert (later.status, later.error["code"]) == (429, "insufficient_quota")


async def test_a_call_turned_away_by_the_queue_opens_no_interaction() -> None:
    world = World(snapshot(pool=ONE_SLOT, lane={"max_queue_seconds": 0.01}))
    running = world.call(never)
    await world.until(lambda: world.asked)
    assert (await world.ask(headers=named("i"))).error["code"] == "queue_timeout"
    running.hang_up()
    await running.end()
    world.calls.snapshot = snapshot(alice={"limits": ONE_A_MINUTE})
    assert (await world.ask(headers=named("i"))).status == 429  # the one that hung up counts


async def test_a_soft_limit_refuses_only_while_others_wait_for_the_pool() -> None:
    soft = {"limits": ONE_A_MINUTE, "soft_limits": ["requests_per_minute"]}
    world = World(snapshot(alice=soft, pool=ONE_SLOT))
    assert [(await world.ask()).status for _ in range(3)] == [200] * 3
    running = world.call(never)
    await world.until(lambda: len(world.asked) == 4)
    waiting = world.call(key="bot")  # in a better lane, and soft as well: nobody waited yet
    await world.until(world.scheduler.waiting)
    refused = await world.ask()
    assert (refused.status, refused.error["code"]) == (429, "rate_limit_exceeded")
    assert world.journal.records[-1].throttle_reason == "requests_per_minute"
    running.hang_up()
    await running.end()
    assert (await waiting.end()).status == 200
    assert (await world.ask()).status == 200


async def test_who_waits_at_its_own_limit_makes_no_soft_limit_hard() -> None:
    soft = {"limits": {**ONE_A_MINUTE, "max_running": 1}, "soft_limits": ["requests_per_minute"]}
    world = World(snapshot(alice=soft))
    running = world.call(never)
    await world.until(lambda: world.asked)
    own = world.call()  # waits for nothing but its own tenant's limit
    await world.until(world.scheduler.waiting)
    also = world.call(headers={"x-fairlane-lane": "critical"})
    await world.until(lambda: len(world.scheduler.waiting()) == 2)
    running.hang_up()
    for each in (running, own, also):
        await each.end()
    assert [own.status, also.status] == [200, 200]


async def test_a_used_up_budget_that_demotes_sends_to_the_lowest_lane() -> None:
    world = World(snapshot(alice={"budgets": [budget(on_exhausted="demote")]}))
    first, second = await world.ask(whole(12, 3)), await world.ask()
    assert [c.headers["x-fairlane-lane"] for c in (first, second)] == ["standard", "batch"]
    assert [record.lane for record in world.journal.records] == ["standard", "batch"]
    assert world.calls.alerts.take() == {}


async def test_a_used_up_budget_that_alerts_lets_in_and_tells() -> None:
    world = World(snapshot(alice={"budgets": [budget(on_exhausted="alert")]}))
    first = await world.ask(whole(12, 3))
    assert world.calls.alerts.take() == {}
    second = await world.ask()
    assert [c.headers["x-fairlane-lane"] for c in (first, second)] == ["standard", "standard"]
    [(account, message)] = world.calls.alerts.take().items()
    assert account == "tenant:alice/hourly"
    assert "10 units an hour" in message
    world.calls.alerts.told()
    assert world.calls.alerts.take() == {}


async def test_usage_that_was_scaled_for_other_choices_is_no_engines_count() -> None:
    world = World(snapshot(pool={"engine": "llamacpp"}))
    choices = [{"index": n, "message": {"content": "Hi"}, "finish_reason": "stop"} for n in (0, 1)]
    await world.ask(whole(12, 3, choices=choices), n=2)
    record = world.record
    assert (record.completion_tokens, record.usage_source) == (6, "estimated")
