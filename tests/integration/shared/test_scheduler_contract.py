"""What the gateway may ask of a scheduler, asked of both: the one of this process, and the one on a
server. What races inside one event loop is in tests/unit/scheduling/test_runtime.py."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from scheduling.core.model import DropReason, Grant, LaneConfig, SchedulerConfig, TenantConfig
from scheduling.core.model import Ticket as Asked
from scheduling.runtime import LocalScheduler
from scheduling.seam import NotGranted, Scheduler
from scheduling.shared.scheduler import SharedScheduler
from tests.integration.shared.house import House, eventually
from tests.redis_server import RedisServer
from tests.unit.scheduling.cast import config, pool

Make = Callable[[SchedulerConfig], Awaitable[Scheduler]]


@pytest.fixture(params=["local", "shared"])
async def make(request: pytest.FixtureRequest, server: RedisServer) -> AsyncIterator[Make]:
    house = House(server)

    async def made(settings: SchedulerConfig) -> Scheduler:
        if request.param == "local":
            return LocalScheduler(settings)
        return await house.scheduler(settings)

    yield made
    await house.close()


def ticket(id: str, tenant: str = "alice", pool: str = "chat", lane: str = "standard") -> Asked:
    return Asked(id, pool, lane, tenant, "", 10.0, 1.0)


def start(
    scheduler: Scheduler, id: str, tenant: str = "alice", timeout_s: float = 60.0
) -> asyncio.Task[Grant]:
    return asyncio.ensure_future(scheduler.acquire(ticket(id, tenant), timeout_s))


async def waits(scheduler: Scheduler, *ids: str) -> None:
    """Until these are queued, and whatever was asked before is done."""
    await asyncio.sleep(0)
    if isinstance(scheduler, SharedScheduler):
        await eventually(lambda: not scheduler.link.pending)
    assert [t.request_id for t in scheduler.waiting()] == list(ids)


async def refused(task: asyncio.Task[Grant]) -> DropReason:
    with pytest.raises(NotGranted) as error:
        await task
    return error.value.reason


async def free(scheduler: Scheduler, places: int) -> None:
    """So many places are free, and no more."""
    for number in range(places):
        await scheduler.acquire(ticket(f"free-{number}", "carol"), 60)
    assert await refused(start(scheduler, "one too many", "carol", 0.0)) == "queue_timeout"
    for number in range(places):
        scheduler.settle(f"free-{number}", 10.0)


async def test_a_free_place_is_granted_at_once(make: Make) -> None:
    scheduler = await make(config())
    assert await scheduler.acquire(ticket("r1"), 0.0) == Grant("r1", "a")


async def test_the_next_is_granted_when_a_place_becomes_free(make: Make) -> None:
    scheduler = await make(config())
    await scheduler.acquire(ticket("r1"), 60)
    second = start(scheduler, "r2")
    await waits(scheduler, "r2")
    scheduler.settle("r1", 10.0)
    assert await second == Grant("r2", "a")


async def test_nobody_who_has_no_time_waits(make: Make) -> None:
    scheduler = await make(config())
    await scheduler.acquire(ticket("r1"), 60)
    assert await refused(start(scheduler, "r2", timeout_s=0.0)) == "queue_timeout"
    assert scheduler.waiting() == []
    scheduler.settle("r1", 10.0)
    await free(scheduler, 1)


async def test_whoever_waits_too_long_times_out_and_leaves_the_queue(make: Make) -> None:
    scheduler = await make(config())
    await scheduler.acquire(ticket("r1"), 60)
    assert await refused(start(scheduler, "r2", timeout_s=0.001)) == "queue_timeout"
    assert scheduler.waiting() == []
    scheduler.settle("r1", 10.0)
    await free(scheduler, 1)


async def test_cancelling_a_waiter_takes_it_out_of_the_queue(make: Make) -> None:
    scheduler = await make(config())
    await scheduler.acquire(ticket("r1"), 60)
    second, third = start(scheduler, "r2"), start(scheduler, "r3")
    await waits(scheduler, "r2", "r3")
    second.cancel()
    await asyncio.gather(second, return_exceptions=True)
    await waits(scheduler, "r3")
    scheduler.settle("r1", 10.0)
    assert (await third).request_id == "r3"


@pytest.mark.parametrize("cancelled_first", [True, False])
async def test_a_grant_that_meets_a_cancellation_is_given_back(
    make: Make, cancelled_first: bool
) -> None:
    scheduler = await make(config())
    await scheduler.acquire(ticket("r1"), 60)
    second, third = start(scheduler, "r2", "bob"), start(scheduler, "r3")
    await waits(scheduler, "r2", "r3")
    steps = [second.cancel, lambda: scheduler.settle("r1", 10.0)]
    for step in steps if cancelled_first else reversed(steps):
        step()
    with pytest.raises(asyncio.CancelledError):
        await second
    assert (await third).request_id == "r3"
    scheduler.settle("r3", 10.0)
    await free(scheduler, 1)


async def test_a_request_that_is_cancelled_before_it_is_known_holds_nothing(make: Make) -> None:
    scheduler = await make(config(pool(2)))
    tasks = [start(scheduler, f"r{i}", ("alice", "bob")[i % 2]) for i in range(20)]
    await asyncio.sleep(0)
    for task in tasks:
        task.cancel()
    for number, answer in enumerate(await asyncio.gather(*tasks, return_exceptions=True)):
        if isinstance(answer, Grant):
            scheduler.settle(f"r{number}", 10.0)
    await free(scheduler, 2)


async def test_a_waiter_can_be_dropped_with_a_reason(make: Make) -> None:
    scheduler = await make(config())
    await scheduler.acquire(ticket("r1"), 60)
    second, third = start(scheduler, "r2", "bob"), start(scheduler, "r3")
    await waits(scheduler, "r2", "r3")
    assert scheduler.drop("r2", "tenant_suspended")
    assert not scheduler.drop("r2", "tenant_suspended")
    assert not scheduler.drop("r1", "tenant_suspended")
    assert await refused(second) == "tenant_suspended"
    scheduler.settle("r1", 10.0)
    assert (await third).endpoint == "a"


async def test_a_waiter_hears_that_its_lane_is_gone_and_others_wait_on(make: Make) -> None:
    lanes = (LaneConfig("standard", 0), LaneConfig("batch", 1))
    scheduler = await make(config(lanes=lanes))
    await scheduler.acquire(ticket("r1"), 60)
    batch = asyncio.ensure_future(scheduler.acquire(ticket("r2", lane="batch"), 60))
    stays = start(scheduler, "r3")
    await waits(scheduler, "r2", "r3")
    scheduler.configure(config())
    assert await refused(batch) == "lane_removed"
    scheduler.settle("r1", 10.0)
    await stays


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        (ticket("r1", pool="gone"), "pool_removed"),
        (ticket("r1", lane="gone"), "lane_removed"),
        (ticket("r1", tenant="gone"), "tenant_removed"),
    ],
)
async def test_what_no_policy_has_is_refused_at_once(make: Make, asked: Asked, reason: str) -> None:
    scheduler = await make(config())
    task = asyncio.ensure_future(scheduler.acquire(asked, 60))
    assert await refused(task) == reason


async def test_more_capacity_and_higher_limits_wake_waiters(make: Make) -> None:
    one = {"alice": TenantConfig(1.0, max_running=1)}
    scheduler = await make(config(tenants=one))
    await scheduler.acquire(ticket("r1"), 60)
    tasks = [start(scheduler, f"r{i}") for i in range(2, 5)]
    await waits(scheduler, "r2", "r3", "r4")
    scheduler.configure(config(pool(2), tenants=one))
    await waits(scheduler, "r2", "r3", "r4")
    scheduler.configure(config(pool(4)))
    await asyncio.gather(*tasks)


async def test_a_tenants_limit_holds_over_all_pools(make: Make) -> None:
    one = {"alice": TenantConfig(1.0, max_running=1)}
    scheduler = await make(config(pool(2), pool(2, name="embed"), tenants=one))
    await scheduler.acquire(ticket("r1"), 60)
    second = asyncio.ensure_future(scheduler.acquire(ticket("r2", pool="embed"), 60))
    await waits(scheduler, "r2")
    scheduler.settle("r1", 10.0)
    assert await second == Grant("r2", "a")


async def test_an_endpoint_that_comes_back_wakes_waiters(make: Make) -> None:
    scheduler = await make(config())
    scheduler.set_available("chat", "a", False)
    waiter = start(scheduler, "r1")
    await waits(scheduler, "r1")
    scheduler.set_available("chat", "a", True)
    assert (await waiter).endpoint == "a"


async def test_a_larger_capacity_wakes_waiters(make: Make) -> None:
    scheduler = await make(config())
    await scheduler.acquire(ticket("r1"), 60)
    waiter = start(scheduler, "r2")
    await waits(scheduler, "r2")
    scheduler.set_capacity("chat", "a", 2, 1e9)
    assert (await waiter).endpoint == "a"


async def test_moving_a_request_elsewhere_lets_another_take_its_place(make: Make) -> None:
    scheduler = await make(config(pool(1, 1)))
    await scheduler.acquire(ticket("r1"), 60)
    assert await scheduler.retry_elsewhere("r1", "a") == Grant("r1", "b")
    assert (await scheduler.acquire(ticket("r2"), 60)).endpoint == "a"
    assert await scheduler.retry_elsewhere("r1", "b") is None
    assert await scheduler.retry_elsewhere("nobody", "b") is None


async def test_settling_twice_frees_one_place(make: Make) -> None:
    scheduler = await make(config())
    await scheduler.acquire(ticket("r1"), 60)
    second, third = start(scheduler, "r2"), start(scheduler, "r3")
    await waits(scheduler, "r2", "r3")
    scheduler.settle("r1", 10.0)
    scheduler.settle("r1", 10.0)
    await second
    await waits(scheduler, "r3")
    scheduler.settle("r2", 10.0)
    await third


async def test_what_is_charged_while_it_streams_counts(make: Make) -> None:
    """Bob asked first, but what he runs has cost more by now."""
    scheduler = await make(config(pool(2)))
    await scheduler.acquire(ticket("a1"), 60)
    await scheduler.acquire(ticket("b1", "bob"), 60)
    bob, alice = start(scheduler, "b2", "bob"), start(scheduler, "a2")
    await waits(scheduler, "b2", "a2")
    scheduler.charge("b1", 100.0)
    if isinstance(scheduler, SharedScheduler):
        await eventually(lambda: not scheduler.uncharged and not scheduler.link.pending)
    scheduler.settle("a1", 10.0)
    await alice
    await waits(scheduler, "b2")
    scheduler.settle("a2", 10.0)
    await bob


async def test_live_state_tells_what_waits_and_runs(make: Make) -> None:
    scheduler = await make(config(pool(1), pool(1, name="embed")))
    await scheduler.acquire(ticket("r1"), 60)
    await scheduler.acquire(ticket("r2", pool="embed"), 60)
    third = start(scheduler, "r3")
    await waits(scheduler, "r3")
    await eventually(lambda: scheduler.live()["tenants"] == {"alice": {"running": 2, "queued": 1}})
    assert scheduler.queued("alice") == 1
    await eventually(lambda: scheduler.backlogged("chat", "standard"))
    assert not scheduler.backlogged("embed", "standard")
    held = scheduler.held("chat", "a")
    assert held is not None
    assert (held.running, held.load, held.wanted) == (1, 1.0, True)
    assert scheduler.held("chat", "nowhere") is None
    live = scheduler.live()["pools"]["chat"]
    assert live["endpoints"]["a"]["running"] == 1
    assert live["lanes"]["standard"]["tenants"]["alice"]["queued"] == 1
    assert live["units_per_second"] is None
    scheduler.drop("r3", "shutting_down")
    assert await refused(third) == "shutting_down"


async def test_an_id_that_is_here_is_not_taken_twice(make: Make) -> None:
    scheduler = await make(config())
    await scheduler.acquire(ticket("r1"), 60)
    with pytest.raises(ValueError, match="r1"):
        await scheduler.acquire(ticket("r1"), 60)
