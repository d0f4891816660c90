"""Accounts and scheduler behind three calls: what is taken, and that all of it comes back."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gateway.admission import Plan
from gateway.governor import AdmissionRefused, LocalGovernor, Overloaded, Place
from gateway.policy import scheduler_config
from metering.core.accounts import LocalAccounts
from metering.core.hold import Admitted, Hold, RateState, Refused
from scheduling.core.model import Grant, Ticket
from scheduling.runtime import LocalScheduler
from scheduling.seam import NotGranted
from tenants.core.snapshot import PolicySnapshot
from tests.unit.gateway.cast import A, plan, snapshot

RATES = RateState(limit_requests=10, remaining_requests=9)
FULL = Refused("max_queued", "rate_limit_exceeded", "too many", 1.0, RATES)


class FakeAccounts:
    def __init__(self, verdict: Admitted | Refused | None = None) -> None:
        self.verdict = verdict or Admitted(RATES)
        self.holds: list[Hold] = []
        self.released: list[str] = []

    def reserve(self, hold: Hold, *_: Any) -> Admitted | Refused:
        self.holds.append(hold)
        return self.verdict

    def release(self, request_id: str, *_: Any) -> None:
        self.released.append(request_id)


class FakeScheduler:
    """Grants at once, or raises what it is told to; `wait_s` is the wait that it predicts."""

    def __init__(
        self, wait_s: float = 0.0, failure: Exception | None = None, backlogged: bool = False
    ) -> None:
        self.wait_s = wait_s
        self.is_backlogged = backlogged
        self.failure = failure
        self.asked: list[tuple[Ticket, float]] = []

    async def acquire(self, ticket: Ticket, timeout_s: float) -> Grant:
        self.asked.append((ticket, timeout_s))
        if self.failure is not None:
            raise self.failure
        return Grant(ticket.request_id, A)

    def expected_wait_s(self, pool: str, lane: str) -> float:
        return self.wait_s

    def backlogged(self, pool: str, lane: str) -> bool:
        assert (pool, lane) == ("chat", "standard")
        return self.is_backlogged

    def queued(self, tenant: str) -> int:
        return 3


def governor(accounts: FakeAccounts, scheduler: FakeScheduler) -> LocalGovernor:
    return LocalGovernor(accounts, scheduler, clock=lambda: 5.0)  # type: ignore[arg-type]


async def admit(accounts: FakeAccounts, scheduler: FakeScheduler, plan: Plan) -> Place:
    return await governor(accounts, scheduler).admit(plan)


class Real:
    """The real parts under one policy, with `max_running` slots on one endpoint."""

    def __init__(self, policy: PolicySnapshot) -> None:
        self.accounts = LocalAccounts()
        self.scheduler = LocalScheduler(scheduler_config(policy))
        self.governor = LocalGovernor(self.accounts, self.scheduler)

    @property
    def is_empty(self) -> bool:
        return self.scheduler.idle and not self.accounts.open_reservations


def one_slot(max_queue_seconds: float = 60, **alice: Any) -> PolicySnapshot:
    one = {"max_running": 1, "max_running_tokens": 1000}
    lane = {"max_queue_seconds": max_queue_seconds}
    return snapshot(alice=alice, pool={"endpoints": [{"url": A}], "capacity": one}, lane=lane)


# --- with fakes ------------------------------------------------------------------------------


async def test_an_admitted_call_holds_its_grant_its_lane_and_its_rates() -> None:
    scheduler = FakeScheduler()
    place = await admit(FakeAccounts(), scheduler, plan(id="r1"))
    assert place == Place(Grant("r1", A), plan().lane, 0.0, RATES)
    assert [(t.lane, limit) for t, limit in scheduler.asked] == [("standard", 60)]


async def test_a_refused_call_never_reaches_the_queue_and_releases_nothing() -> None:
    accounts, scheduler = FakeAccounts(FULL), FakeScheduler()
    with pytest.raises(AdmissionRefused) as caught:
        await admit(accounts, scheduler, plan())
    assert caught.value.verdict is FULL
    assert (scheduler.asked, accounts.released) == ([], [])


async def test_a_used_up_demoting_budget_sends_to_the_lowest_lane_whatever_its_wait() -> None:
    scheduler = FakeScheduler(wait_s=1e9)
    policy = snapshot(alice={"on_overload": "reject"})
    place = await admit(FakeAccounts(Admitted(RATES, demote=True)), scheduler, plan(policy))
    [(ticket, limit)] = scheduler.asked
    assert (place.lane.name, ticket.lane, limit) == ("batch", "batch", 3600)


@pytest.mark.parametrize(
    ("on_overload", "wait_s", "lane"),
    [
        ("queue", 1e9, "standard"),
        ("demote", 60.0, "standard"),  # exactly what the lane allows
        ("demote", 60.1, "batch"),
        ("reject", 60.0, "standard"),
    ],
)
async def test_overload_queues_or_demotes_as_the_tier_says(
    on_overload: str, wait_s: float, lane: str
) -> None:
    policy = snapshot(alice={"on_overload": on_overload})
    place = await admit(FakeAccounts(), FakeScheduler(wait_s), plan(policy))
    assert place.lane.name == lane


async def test_overload_rejects_where_the_tier_says_so_and_gives_the_reservation_back() -> None:
    accounts, scheduler = FakeAccounts(), FakeScheduler(wait_s=61.0)
    policy = snapshot(alice={"on_overload": "reject"})
    with pytest.raises(Overloaded) as caught:
        await admit(accounts, scheduler, plan(policy, id="r1"))
    assert (caught.value.wait_s, caught.value.lane.name) == (61.0, "standard")
    assert (scheduler.asked, accounts.released) == ([], ["r1"])


@pytest.mark.parametrize("on_overload", ["reject", "demote"])
async def test_overload_neither_rejects_nor_demotes_in_the_middle_of_an_interaction(
    on_overload: str,
) -> None:
    policy = snapshot(alice={"on_overload": on_overload})
    later = FakeAccounts(Admitted(RATES, goes_on=True))
    place = await admit(later, FakeScheduler(wait_s=1e9), plan(policy))
    assert place.lane.name == "standard"


@pytest.mark.parametrize("backlogged", [False, True])
async def test_soft_limits_are_hard_ones_while_others_wait(backlogged: bool) -> None:
    accounts = FakeAccounts()
    policy = snapshot(alice={"soft_limits": ["tokens_per_minute"]})
    await admit(accounts, FakeScheduler(backlogged=backlogged), plan(policy))
    soft = frozenset() if backlogged else frozenset(["tokens_per_minute"])
    assert accounts.holds[0].soft_limits == soft


@pytest.mark.parametrize("failure", [NotGranted("queue_timeout"), RuntimeError("a bug")])
async def test_whatever_keeps_it_from_a_place_gives_the_reservation_back(
    failure: Exception,
) -> None:
    accounts = FakeAccounts()
    with pytest.raises(type(failure)):
        await admit(accounts, FakeScheduler(failure=failure), plan(id="r1"))
    assert accounts.released == ["r1"]


async def test_the_depth_of_a_queue_is_judged_by_those_who_wait_in_it() -> None:
    accounts = FakeAccounts()
    policy = snapshot(alice={"limits": {"max_queued": 5}})
    await admit(accounts, FakeScheduler(), plan(policy))
    assert [hold.queued for hold in accounts.holds] == [3]


# --- with the real parts ---------------------------------------------------------------------


async def test_a_call_that_has_ended_leaves_nothing_behind() -> None:
    real = Real(one_slot())
    place = await real.governor.admit(plan(one_slot(), id="r1"))
    assert place.grant == Grant("r1", A)
    assert not real.is_empty
    real.governor.settle("r1", 12, 20.0)
    assert real.is_empty


async def test_only_the_first_settlement_counts() -> None:
    budget = {"name": "hourly", "kind": "sustained", "cost": 1000, "period": "hour"}
    policy = one_slot(budgets=[budget])
    real = Real(policy)
    made = plan(policy, id="r1")
    await real.governor.admit(made)
    real.governor.settle("r1", 12, 20.0)
    real.governor.settle("r1", 500, 900.0)
    real.governor.settle("never-seen", 500, 900.0)
    [shown] = real.accounts.budgets(made.hold.budgets, 0.0, made.at)
    assert (shown["used"], shown["reserved"]) == (20.0, 0.0)
    lane = real.scheduler.live()["pools"]["chat"]["lanes"]["standard"]
    assert lane["served"] == 20.0


async def test_a_refusal_takes_nothing_anywhere() -> None:
    policy = one_slot(limits={"requests_per_minute": 1})
    real = Real(policy)
    await real.governor.admit(plan(policy, id="r1"))
    real.governor.settle("r1", 1, 1.0)
    with pytest.raises(AdmissionRefused) as caught:
        await real.governor.admit(plan(policy, id="r2"))
    assert caught.value.verdict.limit == "requests_per_minute"
    assert real.is_empty


async def test_what_the_queue_turned_away_was_no_request_of_its_minute() -> None:
    policy = one_slot(0.001, limits={"requests_per_minute": 2})
    real = Real(policy)
    await real.governor.admit(plan(policy, id="r1"))
    with pytest.raises(NotGranted):
        await real.governor.admit(plan(policy, id="r2"))
    real.governor.settle("r1", 1, 1.0)
    place = await real.governor.admit(plan(policy, id="r3"))
    assert place.rates.remaining_requests == 0


async def test_a_caller_that_leaves_the_queue_gives_its_reservation_and_its_place_in_it_back() -> (
    None
):
    policy = one_slot()
    real = Real(policy)
    await real.governor.admit(plan(policy, id="r1"))
    waiting = asyncio.create_task(real.governor.admit(plan(policy, id="r2")))
    while not real.scheduler.waiting():
        await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert not real.scheduler.waiting()
    assert real.accounts.open_reservations == 1
    real.governor.settle("r1", 1, 1.0)
    assert real.is_empty


async def test_a_place_that_comes_while_its_caller_leaves_goes_to_the_next() -> None:
    policy = one_slot()
    real = Real(policy)
    await real.governor.admit(plan(policy, id="r1"))
    left = asyncio.create_task(real.governor.admit(plan(policy, id="r2")))
    stays = asyncio.create_task(real.governor.admit(plan(policy, id="r3")))
    while len(real.scheduler.waiting()) < 2:
        await asyncio.sleep(0)
    real.governor.settle("r1", 1, 1.0)  # r2 is granted; its task has not run since
    left.cancel()
    assert (await stays).grant.request_id == "r3"
    with pytest.raises(asyncio.CancelledError):
        await left
    real.governor.settle("r3", 1, 1.0)
    assert real.is_empty


async def test_a_wait_past_the_lanes_limit_ends_without_a_reservation() -> None:
    policy = one_slot(0.001)
    real = Real(policy)
    await real.governor.admit(plan(policy, id="r1"))
    with pytest.raises(NotGranted) as caught:
        await real.governor.admit(plan(policy, id="r2"))
    assert caught.value.reason == "queue_timeout"
    assert real.accounts.open_reservations == 1


@pytest.mark.parametrize("running", [None, 1, 3])
async def test_who_may_queue_nothing_gets_a_place_at_once_or_a_refusal(running: int | None) -> None:
    limits = {"max_queued": 0, "requests_per_minute": 9}
    if running is not None:
        limits["max_running"] = running
    policy = one_slot(limits=limits)
    real = Real(policy)
    await real.governor.admit(plan(policy, id="r1"))
    with pytest.raises(AdmissionRefused) as caught:
        await real.governor.admit(plan(policy, id="r2"))
    verdict = caught.value.verdict
    assert verdict.limit == ("max_running" if running == 1 else "max_queued")
    assert verdict.limit in verdict.message
    assert verdict.rates.remaining_requests == 8
    assert not real.scheduler.waiting()
    real.governor.settle("r1", 1, 1.0)
    await real.governor.admit(plan(policy, id="r3"))
    real.governor.settle("r3", 1, 1.0)
    assert real.is_empty


async def test_a_demoting_budget_demotes_once_it_is_used_up() -> None:
    budget = {
        "name": "hourly",
        "kind": "sustained",
        "cost": 50,
        "period": "hour",
        "on_exhausted": "demote",
    }
    policy = one_slot(budgets=[budget])
    real = Real(policy)
    first = await real.governor.admit(plan(policy, id="r1"))
    real.governor.settle("r1", 40, 60.0)
    second = await real.governor.admit(plan(policy, id="r2"))
    assert (first.lane.name, second.lane.name) == ("standard", "batch")


async def test_charges_count_in_the_queue_before_the_end() -> None:
    policy = one_slot()
    real = Real(policy)
    await real.governor.admit(plan(policy, id="r1"))
    real.governor.charge("r1", 100, 500.0)
    lane = real.scheduler.live()["pools"]["chat"]["lanes"]["standard"]
    assert lane["served"] == 500.0


async def test_another_endpoint_is_given_once_where_there_is_one() -> None:
    alone, pair = Real(one_slot()), Real(snapshot())
    await alone.governor.admit(plan(one_slot(), id="r1"))
    assert await alone.governor.elsewhere("r1", avoid=A) is None
    place = await pair.governor.admit(plan(snapshot(), id="r1"))
    moved = await pair.governor.elsewhere("r1", avoid=place.grant.endpoint)
    assert moved is not None
    assert moved.endpoint != place.grant.endpoint
    pair.governor.settle("r1", 1, 1.0)
    assert pair.is_empty
