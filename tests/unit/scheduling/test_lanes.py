"""Lanes: rank, reserved shares with their credit, and ceilings."""

from __future__ import annotations

import pytest

from scheduling.core.lanes import Lane
from scheduling.core.model import EndpointConfig, LaneConfig, PoolConfig
from tests.unit.scheduling.cast import World, config, pool


def lanes(*shares: float, ceilings: tuple[float, ...] = (1.0, 1.0, 1.0)) -> tuple[LaneConfig, ...]:
    names = ("critical", "standard", "batch")
    return tuple(LaneConfig(names[i], i, s, ceilings[i]) for i, s in enumerate(shares))


def lane(world: World, name: str) -> Lane:
    return world.core.pools["chat"].lanes.all[name]


def lanes_started(world: World, number: int) -> list[str]:
    seen = []
    for _ in range(number):
        world.end()
        seen.append(list(world.running.values())[-1].lane)
    return seen


def test_without_shares_the_best_rank_goes_first() -> None:
    world = World(config(lanes=lanes(0, 0, 0)))
    for name in ("batch", "batch", "standard", "critical"):
        world.ask("alice", lane=name)
    assert lanes_started(world, 3) == ["critical", "standard", "batch"]


def test_a_reserved_share_is_served_though_a_better_lane_never_empties() -> None:
    world = World(config(lanes=lanes(0.3, 0.2, 0.1)))
    for name in ("critical", "standard", "batch"):
        world.ask("alice", lane=name, times=300)
    seen = lanes_started(world, 200)
    assert seen.count("batch") == pytest.approx(20, abs=1)
    assert seen.count("standard") == pytest.approx(40, abs=1)


def test_a_share_is_of_service_not_of_requests() -> None:
    world = World(config(lanes=lanes(0, 0.25)))
    world.ask("alice", 10, lane="critical", times=1000)
    world.ask("alice", 90, lane="standard", times=100)
    seen = lanes_started(world, 500)
    in_units = seen.count("standard") * 90
    assert in_units / (in_units + seen.count("critical") * 10) == pytest.approx(0.25, abs=0.02)


def test_what_no_lane_claims_goes_by_rank() -> None:
    world = World(config(lanes=lanes(0, 0, 0.1)))
    for name in ("critical", "standard", "batch"):
        world.ask("alice", lane=name, times=100)
    assert "standard" not in lanes_started(world, 80)


def test_of_lanes_with_credit_the_earliest_deadline_goes_first() -> None:
    """A lane's deadline is largest / share after its credit covered its next request."""
    world = World(config(lanes=lanes(0, 0.5, 0.3)))
    world.ask("alice", 100, lane="critical")
    world.ask("alice", 50, lane="critical", times=10)
    world.ask("alice", 25, lane="standard")
    world.ask("alice", 5, lane="standard")
    world.ask("alice", 5, lane="batch")
    assert lanes_started(world, 2) == ["critical", "standard"]
    assert lane(world, "batch").credit > lane(world, "standard").credit
    assert lanes_started(world, 2) == ["standard", "batch"]


def test_credit_does_not_grow_past_its_cap_while_the_lane_cannot_run() -> None:
    """Batch is shut out by its ceiling for a long while; then it has a claim on two requests."""
    shut = config(pool(10), lanes=lanes(0, 0, 0.5, ceilings=(1.0, 1.0, 0.1)))
    world = World(shut)
    held = world.ask("alice", 10, lane="batch")
    world.ask("alice", 10, lane="batch", times=300)
    world.ask("alice", 10, lane="critical", times=400)
    for _ in range(100):
        world.end(next(id for id in world.running if id != held))
    assert lane(world, "batch").credit == 20  # twice the costliest request
    before = len(world.running)
    world.core.configure(config(pool(10), lanes=lanes(0, 0, 0.5)), world.now)
    seen = lanes_started(world, 9)
    assert before == 10
    assert seen.count("batch") <= 2 + 5  # its cap, and its half of what is served meanwhile


def test_credit_is_forgotten_when_the_lane_empties() -> None:
    world = World(config(lanes=lanes(0, 0.1)))
    world.ask("alice", lane="critical", times=20)
    waiting = world.ask("alice", lane="standard")
    world.run(5)
    assert lane(world, "standard").credit > 0
    world.core.cancel(waiting)
    assert lane(world, "standard").credit == 0


def test_a_lane_served_by_its_rank_alone_gets_no_credit_from_a_refund() -> None:
    world = World(config(lanes=lanes(0.0, 0.1)))
    world.ask("alice", 100, lane="standard", times=3)
    world.end(cost=1.0)
    assert lane(world, "standard").credit <= 10  # what it earned, not the 99 units refunded


def test_a_ceiling_keeps_slots_free_for_better_lanes() -> None:
    world = World(config(pool(10), lanes=lanes(0, 0, 0, ceilings=(1.0, 1.0, 0.7))))
    world.ask("alice", lane="batch", times=20)
    assert len(world.running) == 7
    world.ask("bob", lane="critical", times=5)
    assert len(world.running) == 10


def test_a_ceiling_counts_the_lanes_below_too() -> None:
    world = World(config(pool(10), lanes=lanes(0, 0, 0, ceilings=(1.0, 0.8, 0.5))))
    world.ask("alice", lane="batch", times=20)
    world.ask("bob", lane="standard", times=20)
    running = [ticket.lane for ticket in world.running.values()]
    assert (running.count("batch"), running.count("standard")) == (5, 3)


def test_a_ceiling_holds_for_load_as_well() -> None:
    world = World(config(pool(100, load=1000), lanes=lanes(0, 0, 0, ceilings=(1.0, 1.0, 0.5))))
    world.ask("alice", lane="batch", load=200, times=10)
    assert len(world.running) == 2
    world.ask("bob", lane="critical", load=200, times=10)
    assert len(world.running) == 5


def test_a_ceiling_never_closes_a_lane_altogether() -> None:
    world = World(config(pool(1, load=10), lanes=lanes(0, 0, 0, ceilings=(1.0, 1.0, 0.1))))
    world.ask("alice", lane="batch", load=10)
    assert len(world.running) == 1


def test_a_lane_at_its_ceiling_holds_nobody_up() -> None:
    world = World(config(pool(2), lanes=lanes(0, 0.9, 0, ceilings=(1.0, 0.5, 1.0))))
    world.ask("alice", lane="standard", times=5)
    assert len(world.running) == 1
    world.ask("bob", lane="critical")
    assert len(world.running) == 2


def test_a_ceiling_is_of_what_is_available() -> None:
    ends = tuple(EndpointConfig(name, 5, 1e9) for name in "ab")
    settings = config(PoolConfig("chat", ends), lanes=lanes(0, 0, 0, ceilings=(1.0, 1.0, 0.6)))
    world = World(settings)
    world.core.set_available("chat", "b", False)
    world.ask("alice", lane="batch", times=20)
    assert len(world.running) == 3
    world.core.set_available("chat", "b", True)
    world.go()
    assert len(world.running) == 6
    world.core.set_available("chat", "a", False)  # what runs there no longer counts
    for id in [id for id, end in world.endpoint.items() if end == "b"]:
        world.end(id)
    on_b = [id for id in world.running if world.endpoint[id] == "b"]
    assert len(on_b) == 3


def test_tenants_share_each_lane_on_its_own() -> None:
    world = World(config(lanes=lanes(0.5, 0.5)))
    world.ask("alice", lane="critical", times=100)
    world.ask("alice", lane="standard", times=100)
    world.ask("bob", lane="standard", times=100)
    seen = []
    for _ in range(80):
        world.end()
        ticket = list(world.running.values())[-1]
        if ticket.lane == "standard":
            seen.append(ticket.tenant)
    assert seen.count("alice") == pytest.approx(seen.count("bob"), abs=1)
