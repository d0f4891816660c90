"""Synthetic workloads: the arrivals that their names promise, the same for the same seed."""

from __future__ import annotations

from itertools import pairwise

import pytest

from scheduling.simulate.trace import Trace
from scheduling.simulate.workload import WORKLOADS, Stream, named, synthesise


def times(trace: Trace, tenant: str) -> list[float]:
    return [arrival.at for arrival in trace.arrivals if arrival.tenant == tenant]


@pytest.mark.parametrize("name", WORKLOADS)
def test_every_workload_is_in_order_and_the_same_again(name: str) -> None:
    trace = named(name, seconds=60)
    assert trace == named(name, seconds=60)
    assert trace != named(name, seed=2, seconds=60)
    assert [a.at for a in trace.arrivals] == sorted(a.at for a in trace.arrivals)
    assert trace.arrivals[0].at >= 0
    assert trace.seconds < 60


def test_one_of_the_overloaded_asks_twice_as_often() -> None:
    trace = named("two-overloaded")
    assert len(times(trace, "bob")) == pytest.approx(2 * len(times(trace, "alice")), rel=0.01)


def test_the_third_is_there_for_the_middle_third() -> None:
    there = times(named("joins-and-leaves"), "carol")
    assert 200 <= min(there) < 201
    assert 399 < max(there) < 400


def test_on_and_off_take_turns() -> None:
    there = times(named("on-off"), "alice")
    assert there
    assert all(at % 120 < 60 for at in there)
    assert {int(at // 120) for at in there} == {0, 1, 2, 3, 4}


def test_poisson_gaps_spread_as_much_as_they_last() -> None:
    stream = Stream("alice", 5.0, poisson=True)
    there = times(synthesise("poisson", (stream,), 1000), "alice")
    gaps = [b - a for a, b in pairwise(there)]
    mean = sum(gaps) / len(gaps)
    spread = (sum((gap - mean) ** 2 for gap in gaps) / len(gaps)) ** 0.5
    assert mean == pytest.approx(0.2, rel=0.1)
    assert spread == pytest.approx(mean, rel=0.1)


def test_a_ramp_ends_at_its_rate() -> None:
    there = times(synthesise("ramp", (Stream("a", 0.2, to_per_second=2.0),), 600), "a")
    last = [at for at in there if at > 540]
    assert len(last) == pytest.approx(60 * 1.9, rel=0.1)
    assert len(there) == pytest.approx(600 * 1.1, rel=0.1)


def test_lengths_stay_in_their_range() -> None:
    found = named("poisson-on-off").arrivals
    lengths = {arrival.prompt_tokens for arrival in found}
    assert 16 <= min(lengths) < 30
    assert 498 < max(lengths) <= 512
