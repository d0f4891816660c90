"""Capacity: slots and load of endpoints, requests that do not fit, and which endpoint is chosen."""

from __future__ import annotations

from itertools import count

from scheduling.core.model import EndpointConfig, LaneConfig, PoolConfig
from tests.unit.scheduling.cast import World, config, pool


def on(world: World, endpoint: str) -> int:
    return sum(world.endpoint[id] == endpoint for id in world.running)


def test_slots_are_never_overfilled() -> None:
    world = World(config(pool(3)))
    world.ask("alice", times=10)
    assert len(world.running) == 3


def test_load_is_never_overfilled() -> None:
    world = World(config(pool(10, load=100)))
    world.ask("alice", load=40, times=5)
    assert len(world.running) == 2


def test_a_request_larger_than_any_endpoint_runs_alone() -> None:
    world = World(config(pool(4, load=100)))
    world.ask("bob", load=30)
    large = world.ask("alice", load=500)
    world.ask("bob", load=30, times=3)
    while large not in world.running:
        world.end()
    assert list(world.running) == [large]
    world.end(large)
    assert len(world.running) > 0


def test_smaller_requests_pass_one_that_does_not_fit() -> None:
    world = World(config(pool(10, load=100)))
    world.ask("carol", 60, load=60)
    large = world.ask("alice", 90, load=90)
    small = world.ask("bob", 10, load=10)
    assert small in world.running
    assert large not in world.running


def test_a_large_request_is_not_starved_by_small_ones_of_ever_new_tenants() -> None:
    """Each newcomer starts level with Alice and would pass her for ever."""
    strangers = {f"t{i}": 1.0 for i in range(400)}
    world = World(config(pool(20, load=100), tenants=strangers))
    names = iter(strangers)
    for _ in range(10):
        world.ask(next(names), 10, load=10)
    large = world.ask("alice", 90, load=90)
    passed = count()
    while large not in world.running:
        world.ask(next(names), 10, load=10)
        world.end()
        assert next(passed) < 30, "passed by far more than it asks for"


def test_a_large_request_is_not_starved_under_a_ceiling_either() -> None:
    lanes = (LaneConfig("standard", 0), LaneConfig("batch", 1, ceiling=0.5))
    strangers = {f"t{i}": 1.0 for i in range(400)}
    world = World(config(pool(100, load=200), lanes=lanes, tenants=strangers))
    names = iter(strangers)
    for _ in range(10):
        world.ask(next(names), 10, load=10, lane="batch")
    large = world.ask("alice", 90, load=90, lane="batch")
    passed = count()
    while large not in world.running:
        world.ask(next(names), 10, load=10, lane="batch")
        world.end()
        assert next(passed) < 30, "passed by far more than it asks for"


def test_while_one_endpoint_drains_for_a_large_request_others_go_on() -> None:
    strangers = {f"t{i}": 1.0 for i in range(400)}
    world = World(config(pool(20, 20, load=100), tenants=strangers))
    names = iter(strangers)
    for _ in range(20):
        world.ask(next(names), 10, load=10)
    large = world.ask("alice", 100, load=100)
    busiest = []
    while large not in world.running:
        world.ask(next(names), 10, load=10)
        world.end()
        busiest.append(max(on(world, "a"), on(world, "b")))
    assert min(busiest) >= 9


def test_those_who_pass_do_not_get_ahead_for_good() -> None:
    """Alice's requests fill the endpoint and Bob's would always find a gap; the shares hold."""
    world = World(config(pool(50, load=100), tenants={"alice": 10.0, "bob": 1.0}))
    for _ in range(1500):
        while world.waits("alice") < 3:
            world.ask("alice", 60, load=60)
        while world.waits("bob") < 3:
            world.ask("bob", 20, load=20)
        world.end()
    assert 0.07 < world.served["bob"] / world.served["alice"] < 0.13


def test_an_urgent_request_takes_the_endpoint_that_a_large_one_below_waits_for() -> None:
    lanes = (LaneConfig("critical", 0), LaneConfig("standard", 1))
    strangers = {f"t{i}": 1.0 for i in range(400)}
    world = World(config(pool(20, load=100), lanes=lanes, tenants=strangers))
    names = iter(strangers)
    for _ in range(10):
        world.ask(next(names), 10, load=10)
    large = world.ask("alice", 90, load=90)
    while not world.core._requests[large].passed_by >= 90:
        world.ask(next(names), 10, load=10)
        world.end()
    world.end()
    urgent = world.ask("bob", 10, load=10, lane="critical")
    assert urgent in world.running


def test_the_least_full_endpoint_is_chosen() -> None:
    world = World(config(pool(2, 4)))
    world.ask("alice", times=3)
    assert (on(world, "a"), on(world, "b")) == (1, 2)


def test_a_prefix_goes_where_it_was_last() -> None:
    world = World(config(pool(8, 8)))
    world.ask("alice", prefix=7)
    world.ask("bob")
    for _ in range(2):
        world.ask("alice", prefix=7)
    assert (on(world, "a"), on(world, "b")) == (3, 1)


def test_a_removed_endpoint_is_not_chosen_for_its_prefix() -> None:
    world = World(config(pool(4, 4)))
    world.ask("bob")
    world.end(world.ask("alice", prefix=7))
    world.core.configure(config(pool(4)), world.now)
    assert world.endpoint[world.ask("alice", prefix=7)] == "a"


def test_an_endpoint_far_over_the_mean_is_not_chosen_for_its_prefix() -> None:
    world = World(config(pool(8, 8)))
    world.ask("alice", prefix=7, times=16)
    assert (on(world, "a"), on(world, "b")) == (8, 8)
    world = World(config(pool(8, 8)))
    world.ask("alice", prefix=7, times=8)
    assert on(world, "b") > 0


def test_within_the_quantum_a_request_goes_first_whose_prefix_is_there() -> None:
    world = World(config(pool(1, locality_quantum=25)))
    world.ask("alice", prefix=7)
    world.ask("bob", prefix=8, times=20)
    world.ask("alice", prefix=7, times=20)
    turns = world.take_turns(20)
    assert turns[:3] == ["alice"] * 3  # at home until she is more than 25 units ahead
    assert turns[3] == "bob"
    assert turns.count("alice") in range(9, 13)


def test_within_the_quantum_a_later_request_goes_first_whose_prefix_is_there() -> None:
    """Of the same application too, past its other requests, until those were overtaken enough."""
    world = World(config(pool(1, locality_quantum=25)))
    world.ask("alice", prefix=7)
    first, second = world.ask("alice", prefix=8), world.ask("alice", prefix=9)
    for _ in range(5):
        world.ask("alice", prefix=7)
    order = []
    while world.running:
        order.append(world.end())
    assert order.index(first) == 3  # after its prefix's two: a third would be more than 25 units
    assert order.index(second) == 4


def test_without_a_quantum_an_application_stays_first_in_first_out() -> None:
    world = World(config(pool(1)))
    ids = [world.ask("alice", prefix=7 + number % 3) for number in range(9)]
    assert [world.end() for _ in ids] == ids


def test_tenants_of_a_popular_prefix_do_not_starve_one_without_it() -> None:
    """Each newcomer starts level with Alice and finds its prefix; within the quantum for ever."""
    strangers = {f"t{i}": 1.0 for i in range(400)}
    world = World(config(pool(1, locality_quantum=25), tenants=strangers))
    names = iter(strangers)
    world.ask(next(names), prefix=7)
    alone = world.ask("alice", prefix=8)
    overtaken = count()
    while alone not in world.running:
        world.ask(next(names), prefix=7)
        world.end()
        assert next(overtaken) <= 8 * 25 / 10


def test_an_endpoint_is_thought_to_hold_what_fits_into_it() -> None:
    world = World(config(pool(4, 4, load=100)))
    world.ask("bob", load=1)  # on a, so that b is the emptier one
    for prefix in (1, 2, 3):
        world.end(world.ask("alice", load=40, prefix=prefix))  # on b, which holds two of them
    world.end(next(iter(world.running)))
    world.ask("bob", load=1)
    world.ask("bob", load=2)
    gone, held = world.ask("alice", load=1, prefix=1), world.ask("alice", load=1, prefix=3)
    assert (world.endpoint[gone], world.endpoint[held]) == ("a", "b")


def test_of_two_endpoints_that_hold_a_prefix_the_emptier_takes_it() -> None:
    world = World(config(pool(4, 4, 4)))
    ids = [world.ask("alice", prefix=7) for _ in range(4)]
    assert [world.endpoint[id] for id in ids] == ["a", "a", "b", "b"]  # a was too full, c is empty
    world.end(ids[0])
    assert world.endpoint[world.ask("alice", prefix=7)] == "a"


def test_without_a_quantum_prefixes_do_not_change_turns() -> None:
    world = World(config(pool(1)))
    world.ask("alice", prefix=7)
    world.ask("bob", prefix=8, times=20)
    world.ask("alice", prefix=7, times=20)
    assert world.take_turns(6) == ["bob", "alice"] * 3


def test_a_draining_endpoint_takes_nothing_new_and_finishes_what_it_has() -> None:
    world = World(config(pool(2, 2)))
    world.ask("alice", times=10)
    ends = (EndpointConfig("a", 2, 1e15, available=False), EndpointConfig("b", 2, 1e15))
    world.core.configure(config(PoolConfig("chat", ends)), world.now)
    for id in [id for id in world.running if world.endpoint[id] == "a"]:
        world.end(id)
    assert (on(world, "a"), on(world, "b")) == (0, 2)


def test_an_unhealthy_endpoint_comes_back() -> None:
    world = World(config(pool(1)))
    world.core.set_available("chat", "a", False)
    world.ask("alice")
    assert not world.running
    world.core.set_available("chat", "a", True)
    world.go()
    assert len(world.running) == 1


def test_health_outlives_a_new_configuration() -> None:
    world = World(config(pool(1)))
    world.core.set_available("chat", "a", False)
    world.core.configure(config(pool(4)), world.now)
    world.ask("alice")
    assert not world.running


def test_capacity_that_was_learnt_counts_at_once() -> None:
    world = World(config(pool(2)))
    world.ask("alice", times=10)
    world.core.set_capacity("chat", "a", 5, 1e15)
    world.go()
    assert len(world.running) == 5
    world.core.set_capacity("chat", "nowhere", 9, 1e15)
    world.core.set_capacity("chat", "a", 3, 1e15)
    world.run(2)
    assert len(world.running) == 3


def test_capacity_lowered_below_what_runs_takes_nothing_until_it_has_room() -> None:
    world = World(config(pool(4)))
    world.ask("alice", times=10)
    world.core.configure(config(pool(2)), world.now)
    world.run(2)
    assert len(world.running) == 2
    world.run(1)
    assert len(world.running) == 2


def test_capacity_raised_is_used_at_once() -> None:
    world = World(config(pool(1)))
    world.ask("alice", times=10)
    world.core.configure(config(pool(4)), world.now)
    world.go()
    assert len(world.running) == 4


def test_a_removed_endpoint_that_comes_back_still_holds_what_runs_there() -> None:
    world = World(config(pool(2, 2)))
    world.ask("alice", times=10)
    world.core.configure(config(pool(2)), world.now)
    world.core.configure(config(pool(2, 2)), world.now)
    world.go()
    assert len(world.running) == 4


def test_a_request_moves_to_another_endpoint_and_keeps_its_charge() -> None:
    world = World(config(pool(1, 1)))
    id = world.ask("alice", 10)
    charged = world.core.pools["chat"].lanes.all["standard"].served
    moved = world.core.retry_elsewhere(id, world.endpoint[id])
    assert moved is not None
    assert (world.endpoint[id], moved.endpoint) == ("a", "b")
    world.ask("alice", 10)  # the first endpoint is free again
    assert len(world.running) == 2
    world.end(id)
    assert world.core.pools["chat"].lanes.all["standard"].served == charged * 2


def test_a_request_stays_where_it_is_when_there_is_no_room_elsewhere() -> None:
    world = World(config(pool(1, 1)))
    world.ask("alice", times=2)
    id = next(iter(world.running))
    assert world.core.retry_elsewhere(id, "a") is None
    assert world.core.retry_elsewhere("unheard-of", "a") is None
    world.end(id)
