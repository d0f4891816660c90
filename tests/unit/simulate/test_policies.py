"""Each policy does what its source says, seen on workloads small enough to count."""

from __future__ import annotations

import pytest

from metering.core.predictor import OutputPredictor
from scheduling.simulate.figures import result
from scheduling.simulate.policies import POLICIES, Entry, entry
from scheduling.simulate.policies.counters import FairServe
from scheduling.simulate.policies.locality import Deficit
from scheduling.simulate.scenario import plain
from scheduling.simulate.simulation import Simulation
from scheduling.simulate.trace import Arrival, Trace
from scheduling.simulate.workload import Stream, synthesise
from tests.unit.simulate.cast import (
    A10G,
    OVERLOAD,
    SMALL,
    asks,
    order_of_service,
    run,
    service_of,
    simulation,
    trace,
)

SHORT_AND_LONG = synthesise(
    "short-and-long",
    (
        Stream("alice", 8.0, prompt=(64, 64), output=(64, 64), poisson=True),
        Stream("bob", 1.5, poisson=True),
    ),
    120,
)
JOINS = synthesise(
    "joins",
    (Stream("alice", 1.5), Stream("bob", 3.0), Stream("carol", 2.0, begins_at=0.5)),
    160,
)


def served_in_order(policy: str, *arrivals: object) -> list[str]:
    made = simulation(trace(*arrivals), policy)  # type: ignore[arg-type]
    made.run()
    return order_of_service(made)


# --- the order of the papers ------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["fairlane", "vtc", "vtc-oracle", "vtc-local"])
def test_virtual_token_counters_keep_two_overloaded_tenants_within_the_bound(policy: str) -> None:
    outcome = run(OVERLOAD, policy, profile=A10G)
    assert outcome.within_bound
    assert outcome.jain > 0.99
    assert service_of(outcome, "alice") == pytest.approx(service_of(outcome, "bob"), rel=0.1)


@pytest.mark.parametrize("policy", ["fcfs", "rpm-120", "longest-prefix"])
def test_first_come_first_served_does_not_nor_does_a_limit_that_is_high(policy: str) -> None:
    outcome = run(OVERLOAD, policy, profile=A10G)
    assert not outcome.within_bound
    assert service_of(outcome, "bob") > 1.3 * service_of(outcome, "alice")


def test_a_limit_low_enough_to_be_fair_wastes_the_engine() -> None:
    fair = run(OVERLOAD, "fairlane", profile=A10G)
    limited = run(OVERLOAD, "rpm-20", profile=A10G)
    assert limited.within_bound
    assert limited.tokens_per_s < 0.6 * fair.tokens_per_s
    assert limited.reasons == {"requests_per_minute": limited.ends["refused"]}


def test_fairness_costs_no_throughput() -> None:
    first_come = run(OVERLOAD, "fcfs", profile=A10G)
    assert run(OVERLOAD, "fairlane", profile=A10G).tokens_per_s > 0.99 * first_come.tokens_per_s


def test_turns_by_request_are_not_turns_by_service() -> None:
    turns, fair = (
        run(SHORT_AND_LONG, "round-robin", profile=A10G),
        run(SHORT_AND_LONG, profile=A10G),
    )
    assert turns.jain < 0.8
    assert fair.jain > 0.99
    assert turns.gap_max > 10 * fair.gap_max


def test_without_the_lift_a_newcomer_takes_the_pool() -> None:
    with_lift, without = run(JOINS, "vtc", profile=A10G), run(JOINS, "lcf", profile=A10G)
    assert with_lift.within_bound
    assert without.gap_max > 2 * with_lift.gap_max
    assert service_of(without, "carol") > 1.3 * service_of(with_lift, "carol")


def test_knowing_the_length_keeps_a_full_engine_fairer_than_charging_as_it_streams() -> None:
    """All ask at once; what streams later was not counted when the engine was filled."""
    short = [asks("alice", 0.0, prompt=16, output=20) for _ in range(800)]
    long = [asks("bob", 0.0, prompt=16, output=500) for _ in range(40)]
    both = trace(*short, *long)
    assert run(both, "vtc-oracle", profile=A10G).gap_max < run(both, "vtc", profile=A10G).gap_max


# --- each by itself ---------------------------------------------------------------------------


def flood() -> list[object]:
    """Alice fills the engine first, then both queue."""
    return [*(asks("alice", 0.0) for _ in range(8)), *(asks("bob", 0.001) for _ in range(4))]


def test_first_come_is_first_served() -> None:
    assert served_in_order("fcfs", *flood()) == ["alice"] * 8 + ["bob"] * 4


def test_round_robin_takes_turns_from_when_both_wait() -> None:
    order = served_in_order("round-robin", *flood())
    assert order[:4] == ["alice"] * 4
    assert sorted(order[4:6]) == sorted(order[6:8]) == ["alice", "bob"]


def test_the_limit_counts_the_last_minute() -> None:
    at = [0.0, 1.0, 2.0, 59.0, 60.5, 61.5]
    made = simulation(trace(*(asks("alice", moment) for moment in at)), "rpm-2")
    made.run()
    assert [job.end for job in made.jobs] == [
        "served", "served", "refused", "refused", "served", "served",
    ]  # fmt: skip


def test_fairserve_refuses_only_when_overloaded_and_never_in_mid_interaction() -> None:
    idle = trace(*(asks("alice", 2.0 * k) for k in range(40)))
    assert run(idle, "fairserve").ends == {"served": 40}

    busy = [asks("alice", 0.0, output=200) for _ in range(60)]
    later = [asks("alice", 0.5, interaction="job"), asks("alice", 0.5, interaction="other")]
    first = asks("alice", 0.0, interaction="job")
    made = simulation(Trace("x", (first, *busy, *later)), "fairserve")
    made.run()
    ends = {job.arrival.interaction: job.end for job in made.jobs[-2:]}
    assert ends == {"job": "served", "other": "refused"}


def test_fairserve_counts_in_usual_requests_so_that_long_ones_are_no_fault() -> None:
    unlimited = Entry(
        "fs", "", "predicted", lambda config, cached: FairServe(config, cached, 10**6)
    )
    placed = plain(SHORT_AND_LONG, A10G)
    made = Simulation(*placed, unlimited, OutputPredictor())
    counted = result(made, made.run())
    assert counted.jain < 0.85
    assert run(SHORT_AND_LONG, profile=A10G).jain > 0.99


def test_the_longest_prefix_goes_first() -> None:
    warm = asks("alice", 0.0, prompt=320, blocks=tuple(range(20)), block_tokens=16)
    fill = [asks("alice", 5.0, output=100 + 50 * k) for k in range(4)]
    cold = asks("bob", 5.1, prompt=320, blocks=tuple(range(500, 520)), block_tokens=16)
    again = asks("carol", 5.2, prompt=320, blocks=tuple(range(20)), block_tokens=16)
    order = served_in_order("longest-prefix", warm, *fill, cold, again)
    assert order[-2:] == ["carol", "bob"]
    assert served_in_order("fcfs", warm, *fill, cold, again)[-2:] == ["bob", "carol"]


def test_deficits_bound_what_locality_may_take() -> None:
    def talk(tenant: str, first: int, step: int) -> list[Arrival]:
        blocks = [tuple(range(first + step * k, first + step * k + 10)) for k in range(200)]
        return [
            asks(tenant, 0.01 * k, prompt=160, output=40, blocks=own, block_tokens=16)
            for k, own in enumerate(blocks)
        ]

    both = trace(*talk("alice", 0, 0), *talk("bob", 1000, 10))
    strict = Entry("dlpm", "", "none", lambda config, cached: Deficit(config, cached, 1000))
    made = Simulation(*plain(both, SMALL), strict, OutputPredictor())
    fair, greedy = result(made, made.run()), run(both, "longest-prefix")
    assert fair.gap_max < greedy.gap_max / 2
    assert fair.cached_tokens > 0


def test_every_policy_is_known_by_name_and_any_limit_is() -> None:
    assert next(iter(POLICIES)) == "fairlane"
    for name in POLICIES:
        assert entry(name) is POLICIES[name]
    assert entry("rpm-17") is not None
    for wrong in ("rpm-", "rpm-0", "rpm-x", "rpm", "", "vtcc"):
        assert entry(wrong) is None
