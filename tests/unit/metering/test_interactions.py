"""When a call is a later one of an interaction: against a model that remembers everything."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metering.core import interactions
from metering.core.interactions import LIFE_S, MOST_CALLS, MOST_OPEN, Interactions


def test_the_first_call_opens_it_and_the_second_goes_on() -> None:
    mine = Interactions()
    assert not mine.goes_on("i", 0.0)
    mine.take("i", 0.0)
    assert mine.goes_on("i", 0.0)
    assert not mine.goes_on("j", 0.0)


def test_it_lives_from_call_to_call_and_ends_by_itself() -> None:
    mine = Interactions()
    for now in (0.0, 800.0, 1600.0):
        mine.take("i", now)
    assert mine.goes_on("i", 1600.0 + LIFE_S - 1)
    assert not mine.goes_on("i", 1600.0 + LIFE_S)


def test_so_many_calls_and_the_next_one_is_a_first_one_again() -> None:
    mine = Interactions()
    for _ in range(MOST_CALLS):
        mine.take("i", 0.0)
    assert not mine.goes_on("i", 0.0)
    mine.take("i", 0.0)
    assert mine.goes_on("i", 0.0)


def test_one_too_many_is_not_opened_and_breaks_none_that_is_open() -> None:
    mine = Interactions()
    assert all(mine.take(f"i{number}", 0.0) for number in range(MOST_OPEN))
    assert not mine.take("more", 1.0)
    assert not mine.goes_on("more", 1.0)
    assert mine.goes_on("i0", 1.0)
    assert mine.take("i0", 1.0)
    assert mine.take("more", LIFE_S)  # the others' lives are over, but for i0's
    assert len(mine) == 2


def test_a_clock_that_steps_back_ends_none_of_them() -> None:
    mine = Interactions()
    mine.take("i", 1_000.0)
    assert mine.take("i", 100.0)
    assert mine.goes_on("i", 1_000.0 + LIFE_S - 1)


STEPS = st.lists(
    st.tuples(st.sampled_from("abc"), st.sampled_from([0.0, 1.0, 9.0, 10.0]), st.booleans()),
    max_size=60,
)


@given(steps=STEPS)
def test_whatever_comes_it_is_what_a_full_memory_says(steps: list[tuple[str, float, bool]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(interactions, "MOST_CALLS", 3)
        patch.setattr(interactions, "MOST_OPEN", 2)
        patch.setattr(interactions, "LIFE_S", 10.0)
        compare(steps)


def compare(steps: list[tuple[str, float, bool]]) -> None:
    mine = Interactions()
    known: dict[str, tuple[int, float]] = {}
    now = 0.0
    for name, later_s, turned_away in steps:
        now += later_s
        known = {n: (c, t) for n, (c, t) in known.items() if now - t < 10}
        calls = known.get(name, (0, 0.0))[0]
        assert mine.goes_on(name, now) == (0 < calls < 3)
        counted = name in known or len(known) < 2
        assert mine.take(name, now) == counted
        if counted:
            known[name] = (calls % 3 + 1, now)
        if counted and turned_away:
            mine.give_back(name)
            known[name] = (known[name][0] - 1, now)
            if not known[name][0]:
                del known[name]
        assert len(mine) == len(known)
