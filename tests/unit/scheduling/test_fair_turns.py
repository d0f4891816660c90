"""Weighted VTC inside one lane: whose turn it is."""

from __future__ import annotations

import pytest

from scheduling.core.model import TenantConfig, Ticket
from tests.unit.scheduling.cast import World, config, pool


def share_of(world: World, tenant: str) -> float:
    return world.served[tenant] / sum(world.served.values())


def test_equal_tenants_take_turns() -> None:
    world = World()
    world.ask("alice", times=5)
    world.ask("bob", times=5)
    assert world.take_turns(6) == ["alice", "bob", "alice", "bob", "alice", "bob"]


def test_a_tie_goes_to_whoever_waited_longest() -> None:
    world = World()
    world.ask("carol")  # holds the only slot
    for tenant in ("bob", "alice"):
        world.ask(tenant)
    assert world.take_turns(2) == ["bob", "alice"]


def test_service_is_shared_by_weight_whatever_the_shape_of_requests() -> None:
    world = World(config(pool(4), tenants={"alice": 2.0, "bob": 1.0}))
    world.run(3000, keep={"alice": 10.0, "bob": 37.0})
    assert share_of(world, "alice") == pytest.approx(2 / 3, rel=0.01)


def test_a_tenant_alone_gets_everything_and_pays_nothing_for_it_later() -> None:
    world = World()
    world.ask("alice", times=500)
    world.run(400)
    assert set(world.started) == {"alice"}
    world.ask("bob", times=50)
    turns = world.take_turns(40)
    assert turns.count("alice") == 20


def test_a_newcomer_gets_no_head_start_over_those_who_wait() -> None:
    world = World()
    world.ask("alice", times=300)
    world.ask("bob", times=300)
    world.run(200)
    world.ask("carol", times=100)
    turns = world.take_turns(30)
    assert {turns.count(tenant) for tenant in ("alice", "bob", "carol")} == {10}


def test_a_tenant_that_returns_after_long_idleness_has_saved_up_nothing() -> None:
    world = World()
    world.ask("bob")
    world.ask("alice", times=400)
    world.run(300)
    world.ask("bob", times=100)
    assert world.take_turns(40).count("bob") == 20


def test_a_return_after_the_queue_had_drained_earns_nothing_either() -> None:
    world = World()
    world.ask("alice")
    world.end()
    world.ask("bob", times=200)  # bob alone, until nothing waits and nothing runs
    world.run(200)
    assert world.core.idle
    world.ask("alice", times=100)
    world.ask("bob", times=100)
    assert world.take_turns(40).count("alice") == 20


def test_work_in_flight_does_not_spare_a_tenant_the_lift() -> None:
    world = World(config(pool(2)))
    held = world.ask("alice")  # a long answer: it runs all the while
    world.ask("bob", times=300)
    for _ in range(200):
        world.end(next(id for id in world.running if id != held))
    world.ask("alice", times=100)
    before = len(world.started)
    for _ in range(40):
        world.end(next(id for id in world.running if id != held))
    assert world.started[before:].count("alice") == 20


def test_coming_and_going_does_not_pay() -> None:
    """Bob lets his queue run empty again and again; Alice always waits."""
    world = World()
    world.ask("alice", times=1000)
    for _ in range(900):
        if not world.waits("bob"):
            world.ask("bob")
        world.end()
    assert share_of(world, "bob") == pytest.approx(0.5, abs=0.01)


def test_charging_at_dispatch_keeps_a_tenant_from_filling_the_pool() -> None:
    world = World(config(pool(8)))
    world.ask("carol", times=8)
    world.ask("alice", times=50)
    world.ask("bob", times=50)
    for _ in range(8):
        world.end()
    assert sorted(world.started[8:]) == ["alice"] * 4 + ["bob"] * 4


def test_service_past_the_estimate_counts_as_it_streams() -> None:
    world = World(config(pool(2)))
    long = world.ask("alice", 10)
    world.ask("bob", 10)
    world.ask("alice", 10, times=20)
    world.ask("bob", 10, times=20)
    world.core.charge(long, 60.0)  # five requests' worth more than expected
    before = len(world.started)
    for _ in range(5):
        world.end(next(id for id in world.running if id != long))
    assert world.started[before:] == ["bob"] * 5


def test_a_charge_that_does_not_grow_counts_nothing() -> None:
    world = World()
    id = world.ask("alice", 10)
    for cost in (5.0, 12.0, 12.0, 3.0):
        world.core.charge(id, cost)
    world.end(id, 12.0)
    assert world.core.pools["chat"].lanes.all["standard"].served == 12.0


def test_settlement_corrects_an_estimate_that_was_too_high() -> None:
    world = both_waiting(estimate=100)
    world.end(cost=10)  # Carol's
    world.end(cost=10)  # Alice's: only a tenth of what was charged
    assert world.started[1:3] == ["alice", "bob"]
    assert world.take_turns(10).count("alice") == 5


def test_settlement_corrects_an_estimate_that_was_too_low() -> None:
    world = both_waiting(estimate=10)
    world.end(cost=10)
    world.end(cost=100)
    assert world.take_turns(9).count("alice") == 0


def both_waiting(estimate: float) -> World:
    """Carol runs; Alice's first request has this estimate, all others cost 10."""
    world = World()
    world.ask("carol", 10)
    world.ask("alice", estimate)
    world.ask("bob", 10)
    for tenant in ("alice", "bob"):
        world.ask(tenant, 10, times=20)
    return world


def test_shares_follow_what_was_used_not_what_was_estimated() -> None:
    world = World(config(pool(3)))
    for _ in range(2000):
        for tenant in ("alice", "bob"):
            if not world.waits(tenant):
                world.ask(tenant, 100.0 if tenant == "alice" else 10.0, times=2)
        world.end(cost=30.0)
    assert share_of(world, "alice") == pytest.approx(0.5, abs=0.01)


def test_an_answer_of_nothing_costs_nothing() -> None:
    world = World()
    world.ask("alice", 10)
    world.ask("alice", 10, times=10)
    world.ask("bob", 10, times=10)
    world.end(cost=0.0)
    assert world.started[-1] == "alice"  # back where she began, and she came first


def test_a_refund_from_before_the_last_lift_does_not_wind_up() -> None:
    world = World(config(pool(2)))
    held = world.ask("alice", 1000)  # overestimated by far, and still running
    world.ask("bob", 10, times=300)
    for _ in range(150):
        world.end(next(id for id in world.running if id != held))
    world.ask("alice", 10, times=100)  # lifted to Bob
    world.end(held, 1)  # 999 units come back, of which the lift had covered all but none
    turns = world.take_turns(40)
    assert turns.count("alice") == pytest.approx(20, abs=1)


def test_a_refund_that_the_lift_did_not_cover_is_given() -> None:
    world = World(config(pool(2)))
    world.ask("carol", times=2)
    world.ask("bob", 10, times=300)
    held = world.ask("alice", 1000)
    world.run(2)
    assert held in world.running
    world.ask("alice", 10, times=100)  # at 1010, far ahead of Bob: nothing to lift
    world.end(held, 10)
    turns = world.take_turns(40)
    assert turns.count("alice") == pytest.approx(20, abs=1)


def test_a_new_weight_says_nothing_about_the_past() -> None:
    world = World(config(pool(1), tenants={"alice": 1.0, "bob": 1.0}))
    world.ask("alice", times=600)
    world.ask("bob", times=600)
    world.run(400)
    world.core.configure(config(pool(1), tenants={"alice": 4.0, "bob": 1.0}), world.now)
    turns = world.take_turns(50)
    assert turns.count("alice") == 40
    assert turns[:10].count("alice") == 8  # at once, not after a stretch of all or nothing


def test_a_refund_is_weighed_like_the_charge_that_it_takes_back() -> None:
    world = World()
    first = world.ask("alice", 100)
    world.ask("alice", 10, times=30)
    world.ask("bob", 10, times=30)
    world.core.configure(config(pool(1), tenants={"alice": 0.1}), world.now)
    world.end(first, 0)  # 100 back, not 1000
    assert world.core.pools["chat"].lanes.all["standard"].queue.shares["alice"].v >= 0


def test_a_tenants_share_is_divided_among_its_applications() -> None:
    apps = TenantConfig(1.0, applications={"bot": 3.0, "nightly": 1.0})
    world = World(config(pool(1), tenants={"alice": apps}))
    world.ask("bob", times=100)
    for application in ("bot", "nightly"):
        world.ask("alice", times=100, application=application)
    by_application: list[str] = []
    for _ in range(80):
        id = next(iter(world.running))
        ticket = world.running[id]
        if ticket.tenant == "alice":
            by_application.append(ticket.application)
        world.end(id)
    assert by_application.count("bot") == pytest.approx(30, abs=1)
    assert by_application.count("nightly") == pytest.approx(10, abs=1)


def test_many_applications_do_not_make_a_larger_share() -> None:
    world = World()
    for application in range(20):
        world.ask("alice", times=20, application=f"app-{application}")
    world.ask("bob", times=100)
    assert world.take_turns(40).count("bob") == 20


def test_an_application_that_was_idle_has_saved_up_nothing() -> None:
    world = World()
    world.ask("alice", application="old", times=200)
    world.run(100)
    world.ask("alice", application="new", times=50)
    seen = []
    for _ in range(20):
        seen.append(world.running[next(iter(world.running))].application)
        world.end()
    assert seen.count("new") == pytest.approx(10, abs=1)


def test_one_application_is_served_first_in_first_out() -> None:
    world = World()
    ids = [world.ask("alice", cost) for cost in (30, 10, 20, 10)]
    assert [world.end() for _ in ids] == ids


def test_counters_keep_their_precision_after_a_million_million_units() -> None:
    world = World(config(pool(1), tenants={"alice": 3.0, "bob": 1.0}))
    world.ask("carol")
    world.ask("alice", 3e12)
    world.ask("bob", 1e12)
    world.ask("alice", 1.0, times=400)
    world.ask("bob", 1.0, times=400)
    turns = world.take_turns(402)[2:]
    assert turns.count("alice") == pytest.approx(300, abs=1)


def test_idle_tenants_are_forgotten_without_credit() -> None:
    names = {f"t{i}": 1.0 for i in range(5000)}
    world = World(config(pool(1), tenants=names))
    for name in names:
        world.ask(name)
        world.end()
    assert len(world.core.pools["chat"].lanes.all["standard"].queue.shares) < 200
    assert not world.core.accounts
    world.ask("alice", times=50)
    world.ask("t0", times=50)  # one of the forgotten
    assert world.take_turns(20).count("t0") == 10


def test_a_tenant_that_is_ahead_is_not_forgotten() -> None:
    names = {f"t{i}": 1.0 for i in range(500)}
    world = World(config(pool(1), tenants=names))
    world.ask("alice", 10)
    world.ask("bob", 10, times=100)
    world.ask("alice", 1000)
    world.end()
    world.end()  # Alice's large one runs and ends; she is idle and 99 requests ahead of Bob
    while any(t.tenant == "alice" for t in world.running.values()):
        world.end()
    for name in names:  # enough strangers for the house to be tidied
        world.core.cancel(world.ask(name))
    world.ask("alice", 10, times=50)
    assert "alice" not in world.take_turns(40)


def test_dead_entries_do_not_pile_up() -> None:
    world = World(config(pool(16)))
    world.ask("alice", 100, times=20)
    world.ask("bob", 100, times=20)
    for _ in range(5000):
        world.end(cost=1.0)  # each ending is a refund, which pushes a fresh entry
        world.ask("alice", 100)
        world.ask("bob", 100)
        world.end(cost=1.0)
    queue = world.core.pools["chat"].lanes.all["standard"].queue
    assert len(queue.heap) < 200


def test_a_hundred_thousand_tenants_take_turns() -> None:
    names = {f"t{i}": 1.0 for i in range(100_000)}
    world = World(config(pool(100), tenants=names))
    for name in names:
        world.core.enqueue(Ticket(name, "chat", "standard", name, "", 10.0, 1.0), 0.0)
    first = {grant.request_id for grant in world.core.dispatch(0.0)}
    assert len(first) == 100
    for id in sorted(first):
        world.core.settle(id, 10.0)
    second = {grant.request_id for grant in world.core.dispatch(0.0)}
    assert len(second) == 100
    assert not first & second
