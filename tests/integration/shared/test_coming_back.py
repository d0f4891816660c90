"""Gateways come back to an empty server one after another, and no place is given away twice."""

from __future__ import annotations

import asyncio

import pytest

from gateway.governor import AdmissionRefused
from gateway.shared import membership
from metering.shared.library import STATE
from tests.integration.shared.gateways import Start, until
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
