"""The weighted max-min share: by weight, to nobody more than it asked for, and all of it."""

from __future__ import annotations

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metering.dashboards.fairness import Claim, asked_for, filled

CLAIMS = st.dictionaries(
    st.text("abcdef", min_size=1, max_size=3),
    st.builds(Claim, st.floats(0.01, 100), st.floats(0, 1e6) | st.just(inf)),
    min_size=1,
    max_size=8,
)


def test_what_one_leaves_is_the_others_by_weight() -> None:
    claims = {"alice": Claim(1, inf), "bob": Claim(3, 30.0), "carol": Claim(2, inf)}
    assert filled(120.0, claims) == {"alice": 30.0, "bob": 30.0, "carol": 60.0}


def test_who_waits_all_the_time_asks_without_bound() -> None:
    assert asked_for(50.0, 0.0) == 50.0
    assert asked_for(50.0, 0.5) == 100.0
    assert asked_for(50.0, 1.0) == inf


@given(st.floats(0, 1e6), CLAIMS)
def test_all_is_given_and_to_nobody_more_than_it_asked_for(
    whole: float, claims: dict[str, Claim]
) -> None:
    found = filled(whole, claims)
    asked = sum(claim.asked for claim in claims.values())
    assert sum(found.values()) == pytest.approx(min(whole, asked), abs=1e-6)
    assert all(found[name] <= claims[name].asked for name in claims)


@given(st.floats(1, 1e6), CLAIMS)
def test_who_got_less_than_it_asked_for_got_no_less_by_weight_than_any_other(
    whole: float, claims: dict[str, Claim]
) -> None:
    found = filled(whole, claims)
    most = max(found[name] / claims[name].weight for name in claims)
    short = [name for name in claims if found[name] < claims[name].asked * (1 - 1e-9)]
    for name in short:
        assert found[name] / claims[name].weight >= most * (1 - 1e-6)
