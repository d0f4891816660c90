"""The burst bucket: what it would be had everybody taken the truth from the beginning."""

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metering.core import refusals
from metering.core.budgets import MOST_LOWS, BurstBucket
from metering.core.hold import RateState
from tests.unit.metering.policies import burst

POLICY = burst(100, refill=10)


@dataclass
class Taken:
    at: float
    held: float
    number: int
    actual: float | None = None


def replay(taken: list[Taken], excess: list[tuple[float, float]], refill: float, now: float):
    """The same, from scratch: each settled request at its actual cost when it came in, what was
    above its hold when that became known."""
    events = [(t.at, t.held if t.actual is None else min(t.held, t.actual)) for t in taken]
    used, then = 0.0, 0.0
    for at, amount in sorted([*events, *excess], key=lambda event: event[0]):
        used = max(0.0, used - refill * (at - then)) + amount
        then = at
    return max(0.0, used - refill * (now - then))


STEPS = st.lists(
    st.tuples(
        st.sampled_from([0.5, 1, 3, 20]),  # seconds until it
        st.sampled_from(["take", "settle"]),
        st.integers(0, 30),  # which open one
        st.integers(0, 60),  # its cost
    ),
    max_size=40,
)


@given(STEPS, st.sampled_from([0.5, 4.0, 10.0]))
def test_a_bucket_is_what_a_replay_of_the_truth_gives(steps, refill):
    bucket, now = BurstBucket(0.0), 0.0
    taken, still_open, excess = [], [], []
    for pause, what, which, cost in steps:
        now += pause
        bucket.drain(refill, now)
        if what == "take":
            taken.append(Taken(now, cost, bucket.take(cost)))
            still_open.append(taken[-1])
        elif still_open:
            one = still_open.pop(which % len(still_open))
            one.actual = cost
            bucket.settle(one.number, one.held, cost)
            if cost > one.held:
                excess.append((now, cost - one.held))
        assert bucket.used == pytest.approx(replay(taken, excess, refill, now), abs=1e-6)
        assert bucket.reserved == pytest.approx(sum(t.held for t in still_open))


def test_a_refund_does_not_give_again_what_refilling_gave():
    bucket = BurstBucket(0.0)
    first = bucket.take(100)
    bucket.drain(10, 10.0)  # full again
    bucket.take(100)
    bucket.settle(first, held=100, actual=0)
    assert bucket.used == 100


def test_settling_above_the_hold_takes_it_below_zero_and_nobody_enters_until_refilled():
    bucket = BurstBucket(0.0)
    bucket.settle(bucket.take(50), held=50, actual=160)
    assert not bucket.fits(POLICY, 0)
    wait = bucket.wait_s(POLICY, 20)
    assert wait == pytest.approx(8.0)
    bucket.drain(10, wait)
    assert bucket.fits(POLICY, 20)


@given(st.floats(0, 300), st.floats(0, 300), st.floats(0.1, 50))
def test_the_wait_is_exact(used, cost, refill):
    policy = burst(100, refill)
    bucket = BurstBucket(0.0)
    bucket.take(used)
    if bucket.fits(policy, cost):
        return
    wait = bucket.wait_s(policy, cost)
    bucket.drain(refill, wait * 0.99)
    assert not bucket.fits(policy, cost) or wait * refill < 1e-3
    bucket.drain(refill, wait)
    assert bucket.fits(policy, cost)


def test_a_cost_above_the_whole_bucket_fits_an_untouched_one():
    bucket = BurstBucket(0.0)
    assert bucket.fits(POLICY, 5_000)
    bucket.take(1)
    assert not bucket.fits(POLICY, 5_000)


def test_what_it_remembers_of_the_past_is_bounded_and_never_in_the_callers_favour():
    bucket = BurstBucket(0.0)
    first = bucket.take(1.0)
    for step in range(5_000):
        bucket.take(1.0)
        bucket.drain(0.1, float(step))
    assert len(bucket._lows) <= MOST_LOWS
    before = bucket.used
    bucket.settle(first, held=1.0, actual=0.0)
    assert 0 <= before - bucket.used <= 1.0


def test_a_clock_that_steps_back_refills_nothing():
    bucket = BurstBucket(100.0)
    bucket.take(80)
    bucket.drain(10, 50.0)
    assert bucket.used == 80
    bucket.drain(10, 101.0)
    assert bucket.used == 70


@pytest.mark.parametrize(
    ("cost", "refill", "wait_s", "said"),
    [
        (100, 1e-12, refusals.LONGEST_S, "It refills by 1e-12 a second."),
        (1e-300, 1e-300, refusals.LONGEST_S, "holds 1e-300 units"),
        (100, 0.001, 50 / 0.001, "It refills by 0.001 a second. Come back in 50000 s."),
        (0, 1, refusals.NEVER_S, "holds 0 units"),
    ],
)
def test_how_long_to_wait_is_a_time_that_a_caller_can_use(cost, refill, wait_s, said):
    """A bucket that takes longer than a calendar has days, and one that lets nothing in ever."""
    policy, bucket = burst(cost, refill=refill), BurstBucket(0.0)
    bucket.take(max(cost, 50.0))
    refused = refusals.burst(policy, bucket, 50.0, RateState())
    assert refused.retry_after_s == wait_s
    assert said in refused.message
    assert len(refused.message) < 300
