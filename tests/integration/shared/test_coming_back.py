"""Gateways come back to an empty server one after another, and no place is given away twice."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gateway.governor import AdmissionRefused, StateLost
from gateway.shared import membership, returning
from metering.shared.library import STATE
from scheduling.shared import keeping
from tests.integration.shared.gateways import Gateway, Start, until
from tests.redis_server import RedisServer

COST = 50.0


@pytest.mark.parametrize("opens", [True, False])
async def test_the_first_gives_no_place_away_that_another_still_uses(
    start: Start, redis: RedisServer, monkeypatch: pytest.MonkeyPatch, opens: bool
) -> None:
    monkeypatch.setattr(membership, "GATHER_S", 60.0)
    one, two = await start("one", opens, places=2), await start("two", opens, places=2)
    await until(lambda: len(one.state._members.live) == 2, "both are seen")
    await one.admit("a")
    await two.admit("b")
    redis.kill()
    away = "apart" if opens else "lost"
    await until(lambda: one.state.name == two.state.name == away, "both have lost it")
    async with two.state._changing:  # it takes its time
        redis.start()
        with redis.client() as client:
            await until(lambda: client.zcard(f"{STATE}alive") == 1, "one is back")
        if opens:
            waiting = one.admit("c")
        await one.state._members.beat()
        await one.state._members.beat()
        assert one.state.name == away
    await until(lambda: one.state.name == two.state.name == "shared", "both are back")
    if not opens:
        waiting = one.admit("c")
    await until(one.state.scheduler.waiting, "it waits")
    assert not waiting.done()
    two.state.settle("b", 30, COST)
    assert (await waiting).grant.request_id == "c"


async def test_one_that_does_not_come_back_is_not_waited_for(
    start: Start, redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(membership, "LEASE_S", 1.5)
    one, two = await start("one", True, places=2), await start("two", True, places=2)
    await until(lambda: len(one.state._members.live) == 2, "both are seen")
    await two.cut_off()
    redis.kill()
    await until(lambda: one.state.name == "apart", "it goes on")
    waiting = [asyncio.ensure_future(one.admit(f"r{n}")) for n in range(2)]
    redis.start()
    await asyncio.gather(*waiting)
    await until(lambda: one.state.name == "shared", "it is back")


async def test_who_is_refused_while_a_gateway_tells_what_is_open_holds_nothing(
    start: Start, redis: RedisServer
) -> None:
    daily = {"name": "daily", "kind": "sustained", "cost": COST, "period": "day"}
    one = await start("one", budgets=[daily], places=2)
    await one.admit("a")
    refused = one.admit("b")
    adopting = asyncio.create_task(one.state.accounts.adopt())
    with pytest.raises(AdmissionRefused):
        await refused
    await adopting
    with redis.client() as client:
        await until(lambda: client.hkeys("fl:accounts:{alice}:open") == [b"a"], "only a is open")


async def let_in(gateway: Gateway, id: str) -> Any:
    """As a caller that tries again."""
    while True:
        try:
            return await gateway.admit(id)
        except StateLost:
            await asyncio.sleep(0.02)


async def test_what_one_that_is_silent_may_run_is_given_to_nobody_until_it_has_told(
    start: Start, redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However quickly the server is back, and whoever is first: also one that has just started."""
    monkeypatch.setattr(membership, "LEASE_S", 60.0)
    one, two = await start("one", places=2), await start("two", places=2)
    await until(lambda: one.state._returning._heard.keys() >= {"one", "two"}, "both are known")
    await asyncio.gather(two.admit("b1"), two.admit("b2"))
    monkeypatch.setattr(returning, "heard_ages_s", lambda: {"one": 0.5, "two": 0.5})
    await two.cut_off()
    redis.kill()
    redis.start()
    waiting = asyncio.create_task(let_in(one, "c"))
    new = asyncio.create_task(start("new", joins=False, places=2))
    with redis.client() as client:
        await until(lambda: client.zcard("fl:{chat}:replicas") >= 1, "one is back")
    for _ in range(20):
        assert (await keeping.unwhole(one.state.scheduler, ["two"])).early
        assert not waiting.done()
    await two.reconnect()
    await until(lambda: two.state.name == one.state.name == "shared", "all are back")
    await until(one.state.scheduler.waiting, "it waits")
    await new
    assert not waiting.done()
    two.state.settle("b1", 30, COST)
    assert (await waiting).grant.request_id == "c"


async def test_what_one_ran_that_is_silent_for_longer_than_its_lease_is_given_to_others(
    start: Start, redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(membership, "LEASE_S", 1.5)
    one, two = await start("one", places=1), await start("two", places=1)
    await until(lambda: one.state._returning._heard.keys() >= {"one", "two"}, "both are known")
    await two.admit("b")
    await two.cut_off()
    redis.kill()
    redis.start()
    assert (await let_in(one, "c")).grant.request_id == "c"
