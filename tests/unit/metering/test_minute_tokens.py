"""Tokens a minute in any order: what is let in on a bound passes the limit by one call at most."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from metering.core.accounts import LocalAccounts
from metering.core.hold import Admitted
from tenants.core.snapshot import Limits
from tests.unit.metering.policies import NOON, hold

LIMIT = 500
LIMITS = Limits(tokens_per_minute=LIMIT)


@st.composite
def calls(draw: st.DrawFn) -> tuple[int, int, int]:
    """Expected, named as the most, and what it takes in the end."""
    most = draw(st.integers(1, 900))
    return draw(st.integers(1, most)), most, draw(st.integers(0, most))


@given(st.lists(st.tuples(calls(), st.booleans()), max_size=40))
def test_what_is_let_in_on_a_bound_passes_the_limit_by_one_call_at_most(
    steps: list[tuple[tuple[int, int, int], bool]],
) -> None:
    accounts = LocalAccounts()
    open_calls: list[tuple[str, int]] = []
    taken: list[int] = []

    def end_one() -> None:
        name, actual = open_calls.pop(0)
        accounts.settle(name, actual, 0.0, 5.0, NOON)

    for (expected, most, actual), one_ends in steps:
        one = hold(limits=LIMITS, tokens=expected, ceiling_tokens=most)
        if isinstance(accounts.reserve(one, 5.0, NOON), Admitted):
            open_calls.append((one.request_id, actual))
            taken.append(actual)
        if one_ends and open_calls:
            end_one()
    while open_calls:
        end_one()
    assert sum(taken) < LIMIT + max(taken, default=1) + 1
    left = accounts.rates("alice", LIMITS, 5.0).remaining_tokens
    assert left == LIMIT - sum(taken)


@given(st.lists(calls(), max_size=20))
def test_one_after_another_none_is_refused_before_the_limit_is_used(
    many: list[tuple[int, int, int]],
) -> None:
    """However large the bounds are that callers name."""
    accounts = LocalAccounts()
    used = 0
    for expected, most, actual in many:
        one = hold(limits=LIMITS, tokens=expected, ceiling_tokens=most)
        verdict = accounts.reserve(one, 5.0, NOON)
        assert isinstance(verdict, Admitted) == (used + max(1, min(expected, LIMIT)) <= LIMIT)
        if isinstance(verdict, Admitted):
            accounts.settle(one.request_id, actual, 0.0, 5.0, NOON)
            used += actual
