"""The sliding minute: never more than it shows, exact waits, corrections where they belong."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metering.core.rates import SPAN, SlidingWindow

ARRIVALS = st.lists(st.tuples(st.floats(0, 200), st.integers(1, 50)), max_size=60)


@given(ARRIVALS, st.floats(0, 200))
def test_the_window_counts_at_least_what_came_in_the_last_60_seconds(arrivals, end):
    window, kept = SlidingWindow(), []
    for now, amount in sorted(arrivals):
        if now <= end:
            window.add(now, amount)
            kept.append((now, amount))
    window.advance(end)
    assert window.total >= sum(amount for now, amount in kept if end - now < 60)
    assert window.total <= sum(amount for now, amount in kept if end - now < SPAN + 1)


@given(ARRIVALS, st.integers(0, 100))
def test_waiting_exactly_as_long_as_told_makes_room_and_less_does_not(arrivals, most):
    window, now = SlidingWindow(), 0.0
    for now, amount in sorted(arrivals):
        window.add(now, amount)
    wait = window.wait_s(now, most)
    if wait > 0.01:
        window.advance(now + wait - 0.01)
        assert window.total > most
    window.advance(now + wait)
    assert window.total <= most


def test_a_correction_moves_the_second_it_was_taken_in():
    window = SlidingWindow()
    slot = window.add(10.5, 100)
    window.add(40.0, 5)
    window.correct(slot, -70)
    assert window.total == 35
    window.advance(71.0)
    assert window.total == 5


def test_a_correction_after_its_second_has_left_is_nothing():
    window = SlidingWindow()
    slot = window.add(10.5, 100)
    window.advance(80.0)
    window.correct(slot, 50)
    assert window.total == 0


def test_a_clock_that_steps_back_loses_nothing():
    window = SlidingWindow()
    window.add(100.0, 7)
    window.add(30.0, 3)
    assert window.total == 10
    window.advance(160.9)
    assert window.total == 10
    window.advance(161.0)
    assert window.total == 0


@given(st.lists(st.floats(0, 10_000), max_size=300))
def test_memory_is_one_slot_a_second_at_most(moments):
    window = SlidingWindow()
    for now in moments:
        window.add(now, 1)
        assert len(window._slots) <= SPAN


def test_reset_tells_when_the_window_is_empty():
    window = SlidingWindow()
    assert window.reset_s(5.0) == 0
    window.add(5.0, 1)
    window.add(9.25, 1)
    assert window.reset_s(9.25) == pytest.approx(60.75)
    window.advance(9.25 + window.reset_s(9.25))
    assert window.total == 0


def test_what_was_given_back_leaves_nothing_to_wait_for():
    window = SlidingWindow()
    first = window.add(5.0, 10)
    second = window.add(30.0, 7)
    window.correct(second, -7)
    assert window.reset_s(31.0) == first + SPAN - 31.0
    window.correct(first, -10)
    assert window.reset_s(31.0) == 0
