"""Policy as the scheduler takes it, and who may wait on under a new one."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import get_args

import pytest

from gateway.governor import NoPlace
from gateway.lost import LOST, lost_place
from gateway.policy import scheduler_config, why_drop
from metering.counting import ANSWERED_503
from scheduling.core.model import DropReason, EndpointConfig, LaneConfig, TenantConfig
from tenants.core.snapshot import PolicySnapshot
from tests.unit.gateway.cast import AT, A, B, plan, planned_run, snapshot
from tests.unit.gateway.world import World, never


def test_lanes_come_by_rank_with_their_shares_and_ceilings() -> None:
    assert scheduler_config(snapshot()).lanes == (
        LaneConfig("critical", 0, 0.3, 1.0),
        LaneConfig("standard", 1, 0.0, 1.0),
        LaneConfig("batch", 2, 0.0, 0.5),
    )


def test_tenants_come_with_weight_limit_and_their_applications_weights() -> None:
    found = scheduler_config(snapshot(alice={"limits": {"max_running": 3}, "weight": 8})).tenants
    assert found["alice"] == TenantConfig(8.0, 3, {"bot": 3.0})
    assert found["bob"] == TenantConfig(1.0, None, {})


def test_pools_come_with_their_endpoints_and_what_each_may_hold() -> None:
    capacity = {"max_running": 2, "max_running_tokens": 500}
    pools = scheduler_config(snapshot(pool={"capacity": capacity, "locality_quantum": 9})).pools
    assert pools["chat"].endpoints == (EndpointConfig(A, 2, 500.0), EndpointConfig(B, 2, 500.0))
    assert pools["chat"].locality_quantum == 9


def test_a_drained_endpoint_takes_nothing_new() -> None:
    ends = scheduler_config(snapshot()).pools["org/code"].endpoints
    assert [(end.id, end.available) for end in ends] == [(A, False), (B, True)]


@pytest.mark.parametrize(
    ("name", "policy", "reason"),
    [
        ("alice", snapshot(revision=2), None),
        ("alice", snapshot(alice={"weight": 9}), None),
        ("bot", snapshot(alice={"applications": []}), "key_revoked"),
        ("bot", snapshot(without=("bot",)), "key_revoked"),
        ("bob", snapshot(without=("bob",)), "tenant_removed"),
        ("alice", snapshot(alice={"enabled": False}), "tenant_suspended"),
    ],
)
def test_who_waits_is_judged_again_under_the_new_policy(
    name: str, policy: PolicySnapshot, reason: DropReason | None
) -> None:
    assert why_drop(policy, planned_run(snapshot(), name), AT) == reason


def test_a_key_that_expires_while_its_call_waits_is_refused() -> None:
    policy = snapshot()
    run = planned_run(policy)
    assert run.who is not None
    expiring = replace(run.who.key, expires_at=AT)
    later = replace(policy, keys={run.who.digest: expiring})
    assert why_drop(later, run, AT - timedelta(microseconds=1)) is None
    assert why_drop(later, run, AT) == "key_revoked"


@pytest.mark.parametrize("reason", get_args(DropReason))
def test_every_way_to_lose_a_place_has_its_answer(reason: DropReason) -> None:
    error = lost_place(NoPlace(reason, plan().lane), "chat")
    assert error.status >= 400
    assert error.message.endswith(".")


async def test_who_was_demoted_is_told_of_the_lane_that_it_waited_in() -> None:
    budget = {"name": "spent", "kind": "sustained", "cost": 1, "period": "day"}
    one = {"endpoints": [{"url": A}], "capacity": {"max_running": 1, "max_running_tokens": 9000}}
    demoting = {"budgets": [{**budget, "on_exhausted": "demote"}]}
    world = World(snapshot(alice=demoting, pool=one))
    first = world.call(never)
    await world.until(lambda: world.asked)
    second = world.call()
    await world.until(world.scheduler.waiting)
    [ticket] = world.scheduler.waiting()
    world.scheduler.drop(ticket.request_id, "queue_timeout")
    await second.end()
    assert "in lane 'batch' within 3600 s" in second.error["message"]
    assert second.headers["x-fairlane-lane"] == world.record.lane == "batch"
    first.hang_up()
    await first.end()


def test_no_answer_is_kept_for_a_reason_that_does_not_exist() -> None:
    assert set(LOST) == set(get_args(DropReason))


def test_what_is_refused_with_a_503_counts_as_refused_and_not_as_failed() -> None:
    beside = {"predicted_wait", "state_unavailable"}  # not of a place that was lost
    lost = {reason for reason, (outcome, _) in LOST.items() if outcome.answer.status >= 500}
    assert set(ANSWERED_503) == lost | beside
