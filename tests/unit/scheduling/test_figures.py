"""What the scheduler shows: live state, debts, the bound, and how long a lane must wait."""

from __future__ import annotations

import json

import pytest

from scheduling.core.figures import bound_units, debts, live
from scheduling.core.model import LaneConfig, TenantConfig
from tests.unit.scheduling.cast import World, config, pool


def test_live_state_has_the_documented_shape() -> None:
    world = World(config(pool(1, load=1000)))
    world.ask("alice", 10, load=100, times=3)
    world.now = 2.5
    state = json.loads(json.dumps(live(world.core, world.now)))
    assert state["tenants"] == {"alice": {"running": 1, "queued": 2}}
    chat = state["pools"]["chat"]
    assert chat["endpoints"] == {
        "a": {"available": True, "running": 1, "load": 100, "max_running": 1, "max_load": 1000}
    }
    lane = chat["lanes"]["standard"]
    assert (lane["queued"], lane["running"], lane["oldest_wait_s"]) == (2, 1, 2.5)
    assert (lane["served"], lane["credit"]) == (10, 0)
    assert lane["tenants"]["alice"] == {
        "queued": 2, "running": 1, "counter": 10, "served": 10, "debt": 0, "weight": 1,
    }  # fmt: skip
    assert chat["bound_units"] == 20


def test_debts_show_who_is_owed_and_add_up_to_nothing() -> None:
    world = World(config(pool(2), tenants={"alice": 2.0, "bob": 1.0}))
    long = world.ask("alice", 10)
    world.ask("bob", 10)
    world.ask("alice", 10, times=5)
    world.ask("bob", 10, times=5)
    world.core.charge(long, 110)
    owed = debts(world.core.pools["chat"].lanes.all["standard"].queue)
    assert owed["alice"] < 0 < owed["bob"]
    assert sum(owed.values()) == pytest.approx(0)


def test_a_tenant_held_back_by_its_own_limit_is_owed_nothing() -> None:
    world = World(config(pool(2), tenants={"alice": TenantConfig(1.0, max_running=1)}))
    world.ask("alice", times=5)
    world.ask("bob", times=5)
    state = live(world.core, 0.0)["pools"]["chat"]["lanes"]["standard"]["tenants"]
    assert state["alice"]["debt"] == 0


def test_the_bound_follows_the_lightest_weight_and_what_can_run_at_once() -> None:
    world = World(config(pool(2, load=100), tenants={"alice": 4.0, "bob": 0.5}))
    world.ask("alice", 20, load=10, times=5)
    assert bound_units(world.core.pools["chat"]) == 2 * 40 / 4
    world.ask("bob", 20, load=10, times=2)
    assert bound_units(world.core.pools["chat"]) == 2 * 40 / 0.5


def test_a_removed_pool_is_not_shown_while_it_runs_out() -> None:
    world = World(config(pool(1), pool(1, name="embed")))
    world.ask("alice", pool="embed")
    world.core.configure(config(pool(1)), 0.0)
    assert set(live(world.core, 0.0)["pools"]) == {"chat"}


def test_the_expected_wait_is_the_backlog_at_the_measured_pace() -> None:
    world = World()
    assert world.core.expected_wait_s("chat", "standard") == 0.0
    world.ask("alice", 10, times=200)
    for _ in range(100):
        world.now += 0.5  # 20 units a second
        world.end()
    waiting = world.waits("alice") * 10
    assert world.core.expected_wait_s("chat", "standard") == pytest.approx(waiting / 20, rel=0.05)


def test_a_lane_waits_for_those_above_but_never_longer_than_its_share_allows() -> None:
    lanes = (LaneConfig("standard", 0), LaneConfig("batch", 1, reserved_share=0.5))
    world = World(config(lanes=lanes))
    world.ask("alice", 10, times=1000)
    world.ask("alice", 10, lane="batch", times=10)
    for _ in range(10):
        world.now += 1.0
        world.end()
    batch = sum(t.lane == "batch" for t in world.core.waiting()) * 10
    assert world.core.expected_wait_s("chat", "batch") == pytest.approx(batch / (0.5 * 10), rel=0.2)


def test_an_idle_hour_does_not_make_the_pool_look_slow() -> None:
    world = World()
    world.ask("alice", 10, times=20)
    for _ in range(20):
        world.now += 0.5
        world.end()
    pace = world.core.pools["chat"].meter.units_per_second
    world.now += 3600
    world.ask("alice", 10)
    assert world.core.pools["chat"].meter.units_per_second == pace


def test_a_clock_that_steps_back_does_no_harm() -> None:
    world = World()
    world.now = 100.0
    world.ask("alice", 10, times=20)
    world.now = 50.0
    world.run(10)
    state = live(world.core, world.now)["pools"]["chat"]
    assert state["lanes"]["standard"]["oldest_wait_s"] == 0.0
    assert world.core.expected_wait_s("chat", "standard") >= 0.0
    assert len(world.running) == 1


def test_a_lane_is_backlogged_by_its_own_and_better_lanes_that_only_the_pool_holds_back() -> None:
    lanes = tuple(LaneConfig(name, rank) for rank, name in enumerate(("top", "standard", "batch")))
    world = World(config(pool(1), lanes=lanes, tenants={"bob": TenantConfig(1.0, 1)}))

    def backlogged() -> list[str]:
        return [lane.name for lane in lanes if world.core.backlogged("chat", lane.name)]

    world.ask("bob")
    assert backlogged() == []  # full, but nobody waits
    world.ask("bob", lane="top")
    assert backlogged() == []  # who waits is at its own limit
    world.ask("alice", lane="batch")
    assert backlogged() == ["batch"]
    world.ask("alice")
    assert backlogged() == ["standard", "batch"]
    assert not world.core.backlogged("chat", "unknown")
    assert not world.core.backlogged("unknown", "standard")
