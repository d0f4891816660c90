"""Whichever of the scheduler's keys is deleted, it serves again after a look at all of them, what
runs goes on, and every place comes back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from random import Random
from typing import Any

import pytest
import valkey
from hypothesis import given, settings
from hypothesis import strategies as st

from metering.shared import wire
from scheduling.core.model import TenantConfig, Ticket
from scheduling.shared.library import SOURCE, Library
from scheduling.shared.link import StateUnavailable
from scheduling.shared.scheduler import SharedScheduler
from tests.integration.shared.house import House, eventually
from tests.integration.shared.test_owners import STEP, TENANT, World, does
from tests.integration.shared.test_scheduler_contract import free, start, waits
from tests.redis_server import RedisServer
from tests.unit.scheduling.cast import config, pool

KINDS = (
    "fl:revision",
    "fl:pools",
    "fl:tenants",
    "fl:accounts",
    "fl:{chat}:pool",
    "fl:{chat}:requests",
    "fl:{chat}:replicas",
    "fl:{chat}:figures",
    "fl:{chat}:shares|standard",
    "fl:{chat}:order|standard",
    "fl:{chat}:small|standard",
    "fl:{chat}:flow|standard|alice|",
    "fl:{chat}:prefixes|a",
    "fl:{chat}:recent|a",
)
LIMITED = config(pool(2), pool(2, name="embed"), tenants={"bob": TenantConfig(1.0, max_running=1)})


@pytest.fixture
async def house(server: RedisServer) -> AsyncIterator[House]:
    made = House(server)
    yield made
    await made.close()


def ask(scheduler: SharedScheduler, id: str, tenant: str, prefix: int = 0) -> asyncio.Task[Any]:
    pool = "embed" if id.startswith("e") else "chat"
    asked = Ticket(id, pool, "standard", tenant, "", 10.0, 1.0, prefix)
    return asyncio.ensure_future(scheduler.acquire(asked, 60))


async def look(*schedulers: SharedScheduler) -> None:
    """What each does once a second."""
    for scheduler in schedulers:
        for name in scheduler.config.pools:
            await scheduler.ask("live", name, True)
        await scheduler.leases.renew()


def may_clear_away_again(client: valkey.Valkey) -> None:
    client.delete("fl:cleared")


async def all_end(asked: dict[str, tuple[SharedScheduler, asyncio.Task[Any]]]) -> None:
    """Each gets its place, and gives it back."""
    left = dict(asked)
    while left:
        done = [id for id, (_, task) in left.items() if task.done()]
        for id in done:
            scheduler, task = left.pop(id)
            assert task.result().request_id == id
            scheduler.settle(id, 10.0)
        if not done:
            await asyncio.wait(
                [task for _, task in left.values()], return_when=asyncio.FIRST_COMPLETED, timeout=60
            )


async def nothing_is_left(client: valkey.Valkey, one: SharedScheduler) -> None:
    await eventually(lambda: not one.link.pending)
    await free(one, 2)
    await eventually(lambda: not one.link.pending)
    await look(one)
    assert not client.hlen("fl:accounts")
    assert not client.hlen("fl:{chat}:requests")
    shown = await one.ask("live", "chat", True)
    assert shown[2][0]["endpoints"]["a"]["running"] == 0


async def test_the_list_of_keys_is_complete(house: House) -> None:
    one = await house.scheduler(LIMITED)
    for n in range(6):
        ask(one, f"r{n}", ("alice", "bob")[n % 2], prefix=7)
    await eventually(lambda: not one.link.pending)
    await look(one)
    with house.server.client() as client:
        found = {key.decode() for key in client.scan_iter() if b"{embed}" not in key}
    assert found == {*KINDS, "fl:{chat}:flow|standard|bob|"}
    for id in [t.request_id for t in one.waiting()]:
        one.drop(id, "shutting_down")


@pytest.mark.parametrize("key", KINDS)
async def test_whichever_key_is_deleted_all_are_served_and_every_place_comes_back(
    house: House, key: str
) -> None:
    one, two = await house.scheduler(LIMITED), await house.scheduler(LIMITED)
    asked = {
        f"{kind}{n}": (who, ask(who, f"{kind}{n}", ("alice", "bob")[n % 2], prefix=7))
        for n, who in enumerate((one, two) * 4)
        for kind in ("r", "e")
    }
    await eventually(lambda: sum(task.done() for _, task in asked.values()) == 4)
    await look(one, two)
    runs = {id for id, (_, task) in asked.items() if task.done()}
    with house.server.client() as client:
        assert client.delete(key)
        await look(one, two)
        await eventually(lambda: not one.link.pending and not two.link.pending)
        for id in sorted(runs):
            scheduler, _ = asked[id]
            assert id in scheduler.running
        await all_end(asked)
        await nothing_is_left(client, one)


@pytest.mark.parametrize("seed", range(3))
async def test_keys_go_one_after_another_while_requests_come_and_end(
    house: House, seed: int
) -> None:
    random = Random(seed)
    one, two = await house.scheduler(LIMITED), await house.scheduler(LIMITED)
    asked: dict[str, tuple[SharedScheduler, asyncio.Task[Any]]] = {}
    with house.server.client() as client:
        for number in range(150):
            if random.random() < 0.15:
                may_clear_away_again(client)
                keys = sorted(client.scan_iter("fl:*"))
                client.delete(random.choice(keys))
                if random.random() < 0.3:
                    await look(random.choice((one, two)))
            who, id = random.choice((one, two)), f"{random.choice('re')}{number}"
            asked[id] = who, ask(who, id, random.choice(("alice", "bob")), random.choice((0, 7)))
            for ended in [i for i, (_, task) in asked.items() if task.done()][:2]:
                scheduler, task = asked.pop(ended)
                assert task.result().request_id == ended
                scheduler.settle(ended, 10.0)
            await asyncio.sleep(0.001)
        may_clear_away_again(client)
        await look(one, two)
        await all_end(asked)
        await nothing_is_left(client, one)


async def test_an_error_in_a_function_clears_nothing_away_for_ever(house: House) -> None:
    """Five times a minute at most; then it is an error like any other."""
    wrong = SOURCE.replace('"charge", function(pool, costs)', '"charge", function(pool)')
    assert wrong != SOURCE
    told: list[int] = []
    given = {"library": Library(wrong), "cleared": lambda: told.append(1)}
    one = await house.scheduler(config(pool(1)), **given)
    await one.acquire(Ticket("r1", "chat", "standard", "alice", "", 10.0, 1.0), 60)
    second = start(one, "r2")
    await waits(one, "r2")
    for _ in range(5):
        with house.server.client() as client:
            before = int(client.get("fl:cleared") or 0)
            assert (await one.ask("charge", "chat", [["r1", 20.0]]))[0] == "empty"
            assert int(client.get("fl:cleared") or 0) == before + 1
            assert client.ttl("fl:cleared") > 0
        await eventually(lambda: not one.link.pending)
    with pytest.raises(StateUnavailable):
        await one.ask("charge", "chat", [["r1", 20.0]])
    assert len(told) == 5
    one.settle("r1", 10.0)
    assert (await second).request_id == "r2"
    one.settle("r2", 10.0)
    await free(one, 1)


def test_no_order_of_calls_leaves_records_that_look_incomplete(server: RedisServer) -> None:
    """Of two gateways, one of which sleeps past its lease now and then: what nobody deleted is
    never taken for missing."""

    @settings(max_examples=60, deadline=None)
    @given(st.lists(st.tuples(STEP, st.sampled_from(["r1", "r2", "r3"])), min_size=15, max_size=40))
    def holds(steps: list[tuple[tuple[str, str], str]]) -> None:
        world = World(client)
        for (act, who), id in steps:
            does(world, act, who, id)
            assert world.call("awake", "live", True)[0] == "done", (act, who, id)
            lost, *_ = world.account("look", TENANT, wire.encode({"known": []}))
            assert not lost
        assert not client.exists("fl:cleared")

    with server.client() as client:
        holds()
