"""A request's life: cancellation, settlement, limits over all pools, and new configurations."""

from __future__ import annotations

import pytest

from scheduling.core.model import Dropped, LaneConfig, TenantConfig, Ticket
from scheduling.core.request import LIFE
from tests.unit.scheduling.cast import World, config, pool

TWO_LANES = (LaneConfig("standard", 0), LaneConfig("batch", 1))


def test_the_table_of_lives_ends_everywhere() -> None:
    reachable = {to for steps in LIFE.values() for to in steps.values()} | {"queued"}
    assert reachable == set(LIFE)
    assert not LIFE["settled"]
    assert not LIFE["cancelled"]


def test_a_cancelled_request_leaves_the_queue_and_is_charged_nothing() -> None:
    world = World()
    world.ask("carol")
    gone = world.ask("alice", 1000)
    world.ask("alice", 10, times=10)
    world.ask("bob", 10, times=10)
    assert world.core.cancel(gone)
    assert world.take_turns(10).count("alice") == 5


@pytest.mark.parametrize("which", [0, 1, 2])
def test_a_request_can_be_cancelled_anywhere_in_its_queue(which: int) -> None:
    world = World()
    world.ask("bob")
    ids = [world.ask("alice") for _ in range(3)]
    assert world.core.cancel(ids.pop(which))
    world.end()
    assert [world.end() for _ in ids] == ids
    assert world.core.idle


def test_what_runs_is_not_cancelled_but_settled() -> None:
    world = World()
    id = world.ask("alice")
    assert not world.core.cancel(id)
    world.end(id, cost=3.0)
    assert world.core.idle


def test_a_grant_given_back_unused_costs_nothing() -> None:
    world = World()
    world.end(world.ask("alice"), cost=0.0)
    assert world.core.pools["chat"].lanes.all["standard"].served == 0


def test_only_the_first_settlement_counts() -> None:
    world = World()
    id = world.ask("alice")
    world.end(id, 10)
    assert not world.core.settle(id, 500)
    world.core.charge(id, 500)
    assert world.core.pools["chat"].lanes.all["standard"].served == 10


def test_unknown_ids_are_nothing() -> None:
    world = World()
    world.core.charge("nobody", 5)
    assert not world.core.settle("nobody", 5)
    assert not world.core.cancel("nobody")


def test_a_queued_request_cannot_be_settled() -> None:
    world = World()
    world.ask("bob")
    waiting = world.ask("alice")
    assert not world.core.settle(waiting, 10)
    assert world.waits("alice") == 1


def test_an_id_that_is_here_already_is_refused() -> None:
    world = World()
    id = world.ask("alice")
    with pytest.raises(ValueError, match="already"):
        world.core.enqueue(Ticket(id, "chat", "standard", "alice", "", 1, 1), 0.0)


@pytest.mark.parametrize("cost", [float("nan"), -5.0])
def test_a_cost_that_is_no_cost_counts_as_nothing(cost: float) -> None:
    world = World()
    world.end(world.ask("alice"), cost=cost)
    assert world.core.pools["chat"].lanes.all["standard"].served == 0


def test_a_tenant_at_its_limit_is_parked_not_refused() -> None:
    world = World(config(pool(4), tenants={"alice": TenantConfig(1.0, max_running=2)}))
    world.ask("alice", times=5)
    assert len(world.running) == 2
    assert world.waits("alice") == 3
    world.ask("bob", times=2)  # nobody waits behind Alice
    assert len(world.running) == 4
    world.end(next(id for id, t in world.running.items() if t.tenant == "alice"))
    assert [t.tenant for t in world.running.values()].count("alice") == 2


def test_a_limit_holds_over_all_pools_and_frees_all_of_them() -> None:
    settings = config(
        pool(2), pool(2, name="embed"), tenants={"alice": TenantConfig(1.0, max_running=1)}
    )
    world = World(settings)
    world.ask("alice", times=3)
    world.ask("alice", times=3, pool="embed")
    ran_in = []
    for _ in range(6):
        assert len(world.running) == 1
        ran_in.append(world.running[next(iter(world.running))].pool)
        world.end()
    assert ran_in == ["chat", "embed"] * 3  # neither pool starves the other


def test_being_parked_earns_no_credit() -> None:
    world = World(config(pool(3), tenants={"alice": TenantConfig(1.0, max_running=1)}))
    held = world.ask("alice")
    world.ask("alice", times=200)
    world.ask("bob", times=400)
    for _ in range(200):
        world.end(next(id for id in world.running if id != held))
    world.core.configure(config(pool(1)), world.now)  # Alice's limit is lifted
    while len(world.running) > 1:
        world.end()
    assert world.take_turns(40).count("alice") == pytest.approx(20, abs=1)


def test_being_parked_for_a_moment_costs_nothing() -> None:
    """Alice's limit is above her share, so it must not make her share smaller."""
    world = World(config(pool(4), tenants={"alice": TenantConfig(1.0, max_running=3)}))
    world.run(2000, keep={"alice": 30.0, "bob": 70.0})
    assert world.served["alice"] / sum(world.served.values()) == pytest.approx(0.5, abs=0.02)


def test_a_parked_tenant_does_not_hold_the_floor_down_for_newcomers() -> None:
    world = World(config(pool(2), tenants={"alice": TenantConfig(1.0, max_running=1)}))
    held = world.ask("alice")
    world.ask("alice", times=50)  # parked at a low counter
    world.ask("bob", times=400)
    for _ in range(200):
        world.end(next(id for id in world.running if id != held))
    world.ask("carol", times=100)
    before = len(world.started)
    for _ in range(40):
        world.end(next(id for id in world.running if id != held))
    assert world.started[before:].count("carol") == 20


def test_a_parked_request_can_be_cancelled_and_asked_again() -> None:
    world = World(config(pool(4), tenants={"alice": TenantConfig(1.0, max_running=1)}))
    running = world.ask("alice")
    world.core.cancel(world.ask("alice"))
    again = world.ask("alice")
    world.end(running)
    assert again in world.running


def test_a_limit_lowered_while_running_lets_what_runs_finish() -> None:
    world = World(config(pool(4)))
    world.ask("alice", times=8)
    world.core.configure(
        config(pool(4), tenants={"alice": TenantConfig(1.0, max_running=1)}), world.now
    )
    world.run(3)
    assert len(world.running) == 1
    world.run(1)
    assert len(world.running) == 1


def test_waiting_requests_of_a_removed_pool_are_dropped_and_running_ones_settle() -> None:
    world = World(config(pool(1), pool(1, name="embed")))
    running = world.ask("alice", pool="embed")
    waiting = world.ask("alice", pool="embed")
    dropped = world.core.configure(config(pool(1)), world.now)
    assert dropped == [Dropped(waiting, "pool_removed")]
    assert "embed" in world.core.pools  # until its last request has ended
    world.end(running)
    assert world.core.idle
    assert set(world.core.pools) == {"chat"}


def test_waiting_requests_of_a_removed_lane_are_dropped_and_running_ones_settle() -> None:
    world = World(config(lanes=TWO_LANES))
    running = world.ask("alice", lane="batch")
    waiting = world.ask("alice", lane="batch")
    kept = world.ask("alice", lane="standard")
    dropped = world.core.configure(config(), world.now)
    assert dropped == [Dropped(waiting, "lane_removed")]
    world.end(running)
    assert list(world.running) == [kept]


def test_waiting_requests_of_a_removed_tenant_are_dropped_and_running_ones_settle() -> None:
    world = World(config(tenants={"dave": 1.0}))
    running = world.ask("dave")
    waiting = world.ask("dave")
    dropped = world.core.configure(config(), world.now)
    assert dropped == [Dropped(waiting, "tenant_removed")]
    world.end(running)
    assert world.core.idle


@pytest.mark.parametrize(
    ("ticket", "reason"),
    [
        (Ticket("r", "gone", "standard", "alice", "", 1, 1), "pool_removed"),
        (Ticket("r", "chat", "gone", "alice", "", 1, 1), "lane_removed"),
        (Ticket("r", "chat", "standard", "gone", "", 1, 1), "tenant_removed"),
    ],
)
def test_a_ticket_from_before_a_removal_is_refused(ticket: Ticket, reason: str) -> None:
    assert World().core.enqueue(ticket, 0.0) == Dropped("r", reason)  # type: ignore[arg-type]


def test_a_lane_moved_in_rank_while_queued_keeps_its_queue() -> None:
    world = World(config(lanes=TWO_LANES))
    world.ask("alice")
    world.ask("alice", lane="standard")
    batch = world.ask("alice", lane="batch")
    swapped = (LaneConfig("standard", 1), LaneConfig("batch", 0))
    world.core.configure(config(lanes=swapped), world.now)
    world.end()
    assert list(world.running) == [batch]


def test_an_unchanged_configuration_changes_nothing() -> None:
    world = World()
    world.ask("alice", times=10)
    world.ask("bob", times=10)
    expected = World()
    expected.ask("alice", times=10)
    expected.ask("bob", times=10)
    for _ in range(12):
        assert world.core.configure(config(), world.now) == []
        assert world.take_turns(1) == expected.take_turns(1)
