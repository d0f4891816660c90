"""Several gateways on one server: who hears of a grant, and what becomes of the places of one that
died, was paused, or lost its connection.

No test waits for a lease to run out: its end is set in the server, where the others look for it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from redis.exceptions import ConnectionError as LostConnection

from scheduling.core.model import Grant, SchedulerConfig, TenantConfig
from scheduling.shared import leases
from scheduling.shared.leases import Reaped
from scheduling.shared.link import Call, StateUnavailable
from scheduling.shared.scheduler import SharedScheduler
from scheduling.shared.wire import Keys, config_fields
from tests.integration.shared.house import House, eventually
from tests.integration.shared.test_scheduler_contract import free, refused, start, ticket, waits
from tests.redis_server import RedisServer, redis_server
from tests.unit.scheduling.cast import config, pool

REPLICAS = "fl:{chat}:replicas"


@pytest.fixture
async def house(server: RedisServer) -> AsyncIterator[House]:
    made = House(server)
    yield made
    await made.close()


async def stop_renewing(scheduler: SharedScheduler) -> None:
    for task in scheduler.leases.tasks:
        if task.get_name() == "lease on redis":
            task.cancel()
    await eventually(lambda: not scheduler.link.pending)


def end_lease(house: House, scheduler: SharedScheduler) -> None:
    with house.server.client() as client:
        client.zadd(REPLICAS, {scheduler.leases.me("chat"): 0})


async def die(house: House, scheduler: SharedScheduler) -> None:
    """Without a word, and its lease is over."""
    for task in scheduler.leases.tasks:
        task.cancel()
    await eventually(lambda: not scheduler.link.pending)
    end_lease(house, scheduler)


async def test_a_grant_reaches_the_gateway_that_waits_for_it(house: House) -> None:
    one = await house.scheduler(config())
    two = await house.scheduler(config())
    await one.acquire(ticket("r1"), 60)
    tasks = [start(two, "r2"), start(two, "r3")]
    await waits(two, "r2", "r3")
    one.settle("r1", 10.0)
    assert await tasks[0] == Grant("r2", "a")
    two.settle("r2", 10.0)
    await tasks[1]


async def test_shares_hold_over_gateways(house: House) -> None:
    """Alice asks at both, Bob at one: each gets half all the same."""
    one = await house.scheduler(config())
    two = await house.scheduler(config())
    await one.acquire(ticket("first", "carol"), 60)
    tasks = {
        id: (gateway, start(gateway, id, tenant))
        for number in range(4)
        for gateway, tenant in ((one, "alice"), (two, "alice"), (two, "bob"))
        for id in [f"{tenant}-{number}-{gateway.name}"]
    }
    for gateway in (one, two):
        await waits(gateway, *(id for id, (where, _) in tasks.items() if where is gateway))
    gateway, running = one, "first"
    order: list[str] = []
    for _ in range(8):
        gateway.settle(running, 10.0)
        await eventually(lambda: any(t.done() for i, (_, t) in tasks.items() if i not in order))
        running = next(i for i, (_, t) in tasks.items() if t.done() and i not in order)
        gateway = tasks[running][0]
        order.append(running)
    assert sum(id.startswith("bob") for id in order) == 4
    for _, task in tasks.values():
        task.cancel()
    await asyncio.gather(*(task for _, task in tasks.values()), return_exceptions=True)


async def test_the_places_of_a_dead_gateway_come_back(house: House) -> None:
    told: list[Reaped] = []
    dead = await house.scheduler(config(), name="dead")
    alive = await house.scheduler(config(), ended=told.extend)
    await dead.acquire(ticket("r1"), 60)
    lost = start(dead, "r2")
    await waits(dead, "r2")
    waiter = start(alive, "r3")
    await waits(alive, "r3")
    await die(house, dead)
    assert await waiter == Grant("r3", "a")
    me = dead.leases.me("chat")
    assert told == [Reaped("r1", me, "running", 10.0), Reaped("r2", me, "queued", 0.0)]
    alive.settle("r3", 10.0)
    await free(alive, 1)
    lost.cancel()
    await asyncio.gather(lost, return_exceptions=True)


async def test_a_gateway_that_wakes_after_its_lease_takes_its_places_again(house: House) -> None:
    told: list[str] = []
    paused = await house.scheduler(config(), lost=told.extend)
    other = await house.scheduler(config())
    await paused.acquire(ticket("r1"), 60)
    second = start(paused, "r2")
    await waits(paused, "r2")
    third, fourth = start(other, "r3", "bob"), start(other, "r4", "bob")
    await waits(other, "r3", "r4")
    await stop_renewing(paused)
    end_lease(house, paused)
    await third
    await paused.leases.renew()
    assert told == ["r1"]
    assert paused.running.keys() == {"r1"}
    other.settle("r3", 10.0)  # the endpoint still runs r1
    await waits(other, "r4")
    await waits(paused, "r2")
    paused.settle("r1", 10.0)
    await fourth
    other.settle("r4", 10.0)
    await second
    paused.settle("r2", 10.0)
    await free(other, 1)


async def test_what_a_fenced_gateway_says_of_its_old_places_changes_nothing(house: House) -> None:
    paused = await house.scheduler(config())
    other = await house.scheduler(config())
    await paused.acquire(ticket("r1"), 60)
    third, fourth = start(other, "r3"), start(other, "r4")
    await waits(other, "r3", "r4")
    await stop_renewing(paused)
    end_lease(house, paused)
    await third
    paused.charge("r1", 500.0)
    paused.settle("r1", 500.0)
    await eventually(lambda: not paused.link.pending)
    await waits(other, "r4")
    answer = await other.ask("live", "chat", True)
    alice = answer[2][0]["lanes"]["standard"]["tenants"]["alice"]
    assert (alice["served"], alice["running"]) == (20, 1)
    other.settle("r3", 10.0)
    await fourth


async def test_a_grant_from_before_a_pause_is_not_taken(house: House) -> None:
    """It came while nobody listened; meanwhile the place is somebody else's."""
    paused = await house.scheduler(config())
    other = await house.scheduler(config())
    await other.acquire(ticket("r1"), 60)
    second = start(paused, "r2")
    await waits(paused, "r2")
    await stop_renewing(paused)
    paused.leases.renewed.clear()  # as long ago as can be
    third = start(other, "r3", "bob")
    await waits(other, "r3")
    other.settle("r1", 10.0)
    end_lease(house, paused)
    await third
    assert not second.done()
    await paused.leases.renew()
    await waits(paused, "r2")
    other.settle("r3", 10.0)
    assert await second == Grant("r2", "a")


async def test_a_late_gateway_that_nobody_missed_lost_nothing(house: House) -> None:
    late = await house.scheduler(config())
    await stop_renewing(late)
    await late.acquire(ticket("r1"), 60)
    second = start(late, "r2")
    await waits(late, "r2")
    end_lease(house, late)
    late.leases.renewed.clear()
    late.settle("r1", 10.0)
    await late.leases.renew()
    assert await second == Grant("r2", "a")
    assert late.leases.me("chat").endswith(".0")


@pytest.mark.parametrize("kind", ["normal", "pubsub"])
async def test_a_connection_that_was_cut_loses_nothing(house: House, kind: str) -> None:
    one = await house.scheduler(config())
    two = await house.scheduler(config())
    await one.acquire(ticket("r1"), 60)
    second, third = start(two, "r2"), start(two, "r3")
    await waits(two, "r2", "r3")
    with house.server.client() as client:
        client.execute_command("CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes")
        one.settle("r1", 10.0)
        assert await second == Grant("r2", "a")
        client.execute_command("CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes")
    two.settle("r2", 10.0)
    assert await third == Grant("r3", "a")
    two.settle("r3", 10.0)
    await free(one, 1)


async def test_a_grant_whose_answer_was_lost_is_in_the_next_one(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is asked again, and has its place already; nothing else would tell so for a while."""
    one = await house.scheduler(config())
    await stop_renewing(one)
    ask = one.link._pipeline
    asked: list[str] = []

    async def broken_off(batch: list[Call]) -> list[Any]:
        answers = await ask(batch)
        asked.extend(call.function for call in batch)
        if asked == ["acquire"]:
            raise LostConnection
        return answers

    monkeypatch.setattr(one.link, "_pipeline", broken_off)
    assert await one.acquire(ticket("r1"), 30) == Grant("r1", "a")
    assert asked == ["acquire", "acquire"]


async def test_an_empty_server_is_told_everything_again(house: House) -> None:
    scheduler = await house.scheduler(config())
    await scheduler.acquire(ticket("r1"), 60)
    second = start(scheduler, "r2")
    await waits(scheduler, "r2")
    with house.server.client() as client:
        client.flushall()
        client.function_flush()
    third = start(scheduler, "r3", "bob")
    await eventually(lambda: scheduler.leases.me("chat").endswith(".1"))
    await waits(scheduler, "r2", "r3")
    scheduler.settle("r1", 10.0)
    done, _ = await asyncio.wait([second, third], return_when=asyncio.FIRST_COMPLETED)
    first = done.pop().result()
    scheduler.settle(first.request_id, 10.0)
    await asyncio.gather(second, third)


async def test_who_leaves_gives_its_places_back_at_once(house: House) -> None:
    leaving = await house.scheduler(config())
    staying = await house.scheduler(config())
    await leaving.acquire(ticket("r1"), 60)
    second = start(staying, "r2")
    await waits(staying, "r2")
    await leaving.close()
    assert await second == Grant("r2", "a")


async def test_an_older_policy_changes_nothing(house: House) -> None:
    new = await house.scheduler(config(pool(2)), revision=7)
    old = await house.scheduler(config(pool(1)), revision=6)
    await free(old, 2)
    old.configure(config(pool(3)), 7)
    await free(new, 2)
    old.configure(config(pool(3)), 8)
    await free(old, 3)


async def test_another_gateways_policy_sends_waiters_away(house: House) -> None:
    one = await house.scheduler(config())
    two = await house.scheduler(config())
    await one.acquire(ticket("r1"), 60)
    second = start(two, "r2")
    await waits(two, "r2")
    one.configure(config(pool(1, name="embed")))
    assert await refused(second) == "pool_removed"


async def test_an_endpoint_is_out_when_most_gateways_find_it_down(house: House) -> None:
    gateways = [await house.scheduler(config()) for _ in range(3)]
    gateways[0].set_available("chat", "a", False)
    await free(gateways[0], 1)
    gateways[1].set_available("chat", "a", False)
    waiter = start(gateways[1], "r1")
    await waits(gateways[1], "r1")
    await gateways[0].close()  # one of two
    assert await waiter == Grant("r1", "a")


async def test_one_gateway_tells_what_an_endpoint_takes(house: House) -> None:
    leader = await house.scheduler(config())
    other = await house.scheduler(config())
    other.set_capacity("chat", "a", 3, 1e9)
    await free(other, 1)
    leader.set_capacity("chat", "a", 2, 1e9)
    await eventually(lambda: not leader.link.pending)
    await free(other, 2)
    await leader.close()
    await other.leases.renew()
    other.set_capacity("chat", "a", 3, 1e9)
    await free(other, 3)


async def test_a_tenants_limit_holds_over_gateways(house: House) -> None:
    limited = config(pool(4), tenants={"alice": TenantConfig(1.0, max_running=1)})
    one = await house.scheduler(limited)
    two = await house.scheduler(limited)
    await one.acquire(ticket("r1"), 60)
    second = start(two, "r2")
    await waits(two, "r2")
    one.settle("r1", 10.0)
    await second


async def test_who_leaves_as_an_end_in_another_pool_lets_it_in_holds_nothing(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its task was cancelled, and has not run yet when the grant is here."""
    limited = {"alice": TenantConfig(1.0, max_running=1)}
    one = await house.scheduler(config(pool(1), pool(1, name="other"), tenants=limited))
    await one.acquire(ticket("r1"), 60)
    leaving = asyncio.ensure_future(one.acquire(ticket("r2", pool="other"), 60))
    await waits(one, "r2")
    granted = one.granted

    def as_it_leaves(grants: list[list[str]]) -> None:
        if ["r2", "a"] in grants:
            leaving.cancel()
        granted(grants)

    monkeypatch.setattr(one, "granted", as_it_leaves)
    one.settle("r1", 10.0)
    with pytest.raises(asyncio.CancelledError):
        await leaving
    assert await one.acquire(ticket("r3"), 0.0) == Grant("r3", "a")


async def test_nor_is_one_in_another_pool_where_the_lease_may_be_over(house: House) -> None:
    """An end in a pool whose lease is good lets in who waits in one whose lease may not be."""
    limited = {"alice": TenantConfig(1.0, max_running=1)}
    one = await house.scheduler(config(pool(1), pool(1, name="other"), tenants=limited))
    await one.acquire(ticket("r1"), 60)
    second = asyncio.ensure_future(one.acquire(ticket("r2", pool="other"), 60))
    await waits(one, "r2")
    await stop_renewing(one)
    del one.leases.renewed["other"]  # as long ago as can be
    one.settle("r1", 10.0)
    await eventually(lambda: not one.link.pending)
    assert [waiting.request_id for waiting in one.waiting()] == ["r2"]
    await one.leases.renew()
    assert await second == Grant("r2", "a")


async def test_who_may_not_listen_starts_and_hears_of_its_grants_later() -> None:
    """A user of the server's that was given keys and no channels, as is usual for a new one."""
    with redis_server() as own:
        with own.client() as client:
            client.execute_command("ACL", "SETUSER", "default", "resetchannels")
        house = House(own)
        one = await house.scheduler(config(), lease_s=0.6)
        two = await house.scheduler(config(), lease_s=0.6)
        await one.acquire(ticket("r1"), 60)
        second = start(two, "r2")
        await waits(two, "r2")
        one.settle("r1", 10.0)
        await second
        await house.close()


async def test_while_the_server_is_down_ends_are_kept_and_beginnings_fail() -> None:
    """What was down comes back empty: the same gateway then builds the state again."""
    with redis_server() as own:
        house = House(own)
        scheduler = await house.scheduler(config(), patience_s=0.05)
        await scheduler.acquire(ticket("r1"), 60)
        own.kill()
        scheduler.settle("r1", 10.0)
        with pytest.raises(StateUnavailable):
            await scheduler.acquire(ticket("r2"), 60)
        assert not scheduler.reachable
        assert scheduler.waiting() == []
        own.start()
        await eventually(lambda: scheduler.reachable and not scheduler.link.pending)
        await free(scheduler, 1)
        await house.close()


async def test_a_scheduler_does_not_start_without_its_server() -> None:
    with redis_server() as own:
        house = House(own)
        own.kill()
        with pytest.raises(StateUnavailable):
            await house.scheduler(config(), patience_s=0.05)
        await house.close()


async def test_nor_where_a_policy_without_pools_leaves_nothing_to_ask_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A gateway that waits here is never ready, and nobody is told why."""
    monkeypatch.setattr(leases, "SUBSCRIBED_S", 0.05)
    with redis_server() as own:
        house = House(own)
        own.kill()
        with pytest.raises(StateUnavailable):
            await house.scheduler(SchedulerConfig((), {}, {}), patience_s=0.05)
        own.start()
        await eventually(lambda: house.schedulers[0].reachable)
        await house.close()


def test_names_that_would_break_its_keys_are_refused() -> None:
    with pytest.raises(ValueError, match=r"no name with \{"):
        Keys().of("a}b")
    with pytest.raises(ValueError, match=r"no name with \|"):
        config_fields(config(tenants={"a|b": 1.0}))
