"""The scheduler of one process: who waits hears exactly one answer, whatever races with it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from scheduling.core.model import (
    DropReason,
    Grant,
    LaneConfig,
    SchedulerConfig,
    TenantConfig,
    Ticket,
)
from scheduling.runtime import LocalScheduler
from scheduling.seam import NotGranted, Scheduler
from tests.unit.scheduling.cast import config, pool


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def scheduler(settings: SchedulerConfig | None = None) -> LocalScheduler:
    return LocalScheduler(settings or config(), Clock())


def ticket(id: str, tenant: str = "alice", pool: str = "chat", lane: str = "standard") -> Ticket:
    return Ticket(id, pool, lane, tenant, "", 10.0, 1.0)


async def settle_down() -> None:
    """Until every task that can run has run."""
    for _ in range(5):
        await asyncio.sleep(0)


def start(
    house: Scheduler, id: str, tenant: str = "alice", timeout_s: float = 60.0
) -> asyncio.Task[Grant]:
    return asyncio.ensure_future(house.acquire(ticket(id, tenant), timeout_s))


async def refused(task: asyncio.Task[Grant]) -> DropReason:
    with pytest.raises(NotGranted) as error:
        await task
    return error.value.reason


@pytest.fixture(autouse=True)
async def no_complaints() -> AsyncIterator[None]:
    """Nothing reaches the loop's exception handler: no result or error was left unread."""
    complaints: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
    yield
    await settle_down()
    assert not complaints


async def test_a_free_place_is_granted_at_once() -> None:
    house = scheduler()
    assert await house.acquire(ticket("r1"), 0.0) == Grant("r1", "a")


async def test_the_next_is_granted_when_a_place_becomes_free() -> None:
    house = scheduler()
    await house.acquire(ticket("r1"), 60)
    second = start(house, "r2")
    await settle_down()
    assert not second.done()
    house.settle("r1", 10.0)
    assert await second == Grant("r2", "a")


async def test_whoever_waits_too_long_times_out_and_leaves_the_queue() -> None:
    house = scheduler()
    await house.acquire(ticket("r1"), 60)
    assert await refused(start(house, "r2", timeout_s=0.001)) == "queue_timeout"
    assert house.waiting() == []
    house.settle("r1", 10.0)
    assert house.idle


async def test_cancelling_a_waiter_takes_it_out_of_the_queue() -> None:
    house = scheduler()
    await house.acquire(ticket("r1"), 60)
    second, third = start(house, "r2"), start(house, "r3")
    await settle_down()
    second.cancel()
    await settle_down()
    assert [t.request_id for t in house.waiting()] == ["r3"]
    house.settle("r1", 10.0)
    assert (await third).request_id == "r3"


async def test_a_grant_that_meets_a_cancellation_is_given_back_and_costs_nothing() -> None:
    """Cancelled first, granted before the task could run."""
    house = scheduler()
    await house.acquire(ticket("r1"), 60)
    second, third = start(house, "r2", "bob"), start(house, "r3")
    await settle_down()
    second.cancel()
    house.settle("r1", 10.0)
    assert (await third).request_id == "r3"
    with pytest.raises(asyncio.CancelledError):
        await second
    assert_charged(house, alice=20.0, bob=0.0)


async def test_a_cancellation_that_meets_a_grant_gives_it_back_and_costs_nothing() -> None:
    """Granted first, cancelled before the task could run."""
    house = scheduler()
    await house.acquire(ticket("r1"), 60)
    second, third = start(house, "r2", "bob"), start(house, "r3")
    await settle_down()
    house.settle("r1", 10.0)
    second.cancel()
    with pytest.raises(asyncio.CancelledError):
        await second
    assert (await third).request_id == "r3"
    assert_charged(house, alice=20.0, bob=0.0)


def assert_charged(house: LocalScheduler, **served: float) -> None:
    tenants = house.live()["pools"]["chat"]["lanes"]["standard"]["tenants"]
    assert {name: tenants[name]["served"] for name in served} == served


@pytest.mark.parametrize("first", ["drop", "cancel"])
async def test_a_cancellation_that_meets_a_drop_is_a_cancellation(first: str) -> None:
    house = scheduler()
    await house.acquire(ticket("r1"), 60)
    second = start(house, "r2")
    await settle_down()
    steps = [lambda: house.drop("r2", "key_revoked"), second.cancel]
    for step in steps if first == "drop" else reversed(steps):
        step()
    with pytest.raises(asyncio.CancelledError):
        await second
    assert house.waiting() == []
    house.settle("r1", 10.0)
    assert house.idle


async def test_many_cancelled_at_once_lose_no_place() -> None:
    house = scheduler(config(pool(3)))
    tasks = [start(house, f"r{i}", ("alice", "bob")[i % 2]) for i in range(60)]
    await settle_down()
    for number, task in enumerate(tasks):
        if number % 3 == 0:
            task.cancel()
        if number % 5 == 0 and task.done() and not task.cancelled():
            house.settle(f"r{number}", 10.0)
    served = 0
    while not house.idle:
        await settle_down()
        for number, task in enumerate(tasks):
            if task.done() and not task.cancelled():
                house.settle(f"r{number}", 10.0)
                served += 1
    assert served > 0
    ends = house.live()["pools"]["chat"]["endpoints"]
    assert ends["a"]["running"] == 0


async def test_a_waiter_can_be_dropped_with_a_reason() -> None:
    house = scheduler()
    await house.acquire(ticket("r1"), 60)
    second, third = start(house, "r2", "bob"), start(house, "r3")
    await settle_down()
    for waiting in house.waiting():
        if waiting.tenant == "bob":
            assert house.drop(waiting.request_id, "tenant_suspended")
    assert await refused(second) == "tenant_suspended"
    house.settle("r1", 10.0)
    await third


async def test_what_runs_is_not_dropped() -> None:
    house = scheduler()
    await house.acquire(ticket("r1"), 60)
    assert not house.drop("r1", "key_revoked")
    assert not house.drop("nobody", "key_revoked")
    assert house.live()["tenants"]["alice"]["running"] == 1


async def test_a_waiter_hears_that_its_lane_is_gone_and_others_wait_on() -> None:
    lanes = (LaneConfig("standard", 0), LaneConfig("batch", 1))
    house = scheduler(config(lanes=lanes))
    await house.acquire(ticket("r1"), 60)
    batch = asyncio.ensure_future(house.acquire(ticket("r2", lane="batch"), 60))
    stays = start(house, "r3")
    await settle_down()
    house.configure(config())
    assert await refused(batch) == "lane_removed"
    house.settle("r1", 10.0)
    await stays


async def test_a_ticket_for_a_pool_that_is_gone_is_refused_at_once() -> None:
    house = scheduler()
    gone = asyncio.ensure_future(house.acquire(ticket("r1", pool="gone"), 60))
    assert await refused(gone) == "pool_removed"
    assert house.idle


async def test_more_capacity_and_higher_limits_wake_waiters() -> None:
    house = scheduler(config(tenants={"alice": TenantConfig(1.0, max_running=1)}))
    await house.acquire(ticket("r1"), 60)
    tasks = [start(house, f"r{i}") for i in range(2, 5)]
    await settle_down()
    house.configure(config(pool(2), tenants={"alice": TenantConfig(1.0, max_running=1)}))
    await settle_down()
    assert not any(task.done() for task in tasks)
    house.configure(config(pool(4)))
    await asyncio.gather(*tasks)


async def test_an_endpoint_that_comes_back_wakes_waiters() -> None:
    house = scheduler()
    house.set_available("chat", "a", False)
    waiter = start(house, "r1")
    await settle_down()
    assert not waiter.done()
    house.set_available("chat", "a", True)
    assert (await waiter).endpoint == "a"


async def test_moving_a_request_elsewhere_lets_another_take_its_place() -> None:
    house = scheduler(config(pool(1, 1)))
    await house.acquire(ticket("r1"), 60)
    assert await house.retry_elsewhere("r1", "a") == Grant("r1", "b")
    assert (await house.acquire(ticket("r2"), 60)).endpoint == "a"
    assert await house.retry_elsewhere("r1", "b") is None


async def test_settling_twice_frees_one_place() -> None:
    house = scheduler()
    await house.acquire(ticket("r1"), 60)
    second, third = start(house, "r2"), start(house, "r3")
    await settle_down()
    house.settle("r1", 10.0)
    house.settle("r1", 10.0)
    await second
    await settle_down()
    assert not third.done()
    house.settle("r2", 10.0)
    await third


async def test_live_state_counts_tenants_over_all_pools() -> None:
    house = scheduler(config(pool(1), pool(1, name="embed")))
    await house.acquire(ticket("r1"), 60)
    await house.acquire(ticket("r2", pool="embed"), 60)
    third = start(house, "r3")
    await settle_down()
    assert house.live()["tenants"] == {"alice": {"running": 2, "queued": 1}}
    house.drop("r3", "shutting_down")
    assert await refused(third) == "shutting_down"
