"""One sustained budget: its rule of room, its windows, a policy that changes, a clock that does."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metering.core.budgets import SustainedAccount
from tests.unit.metering.policies import NOON, sustained

HOUR = timedelta(hours=1)
BUDGET = sustained(100)


def counter(account, policy=BUDGET, at=NOON, now=0.0):
    return account.counter(policy, at, now)


def spend(account, amount, policy=BUDGET, at=NOON, now=0.0):
    c = counter(account, policy, at, now)
    c.take(amount)
    c.settle(amount, amount)


def test_a_budget_that_is_exactly_used_up_refuses_even_what_costs_nothing():
    account = SustainedAccount()
    spend(account, 100)
    assert counter(account).need(BUDGET, 0, 0) is None


def test_the_last_unit_can_be_used():
    account = SustainedAccount()
    spend(account, 99)
    assert counter(account).need(BUDGET, 1, 1) == 1


def test_a_budget_of_nothing_refuses_everything():
    assert counter(SustainedAccount(), sustained(0)).need(sustained(0), 0, 0) is None


@given(st.lists(st.sampled_from([0.1, 0.2, 0.3, 0.7]), min_size=1, max_size=200))
def test_rounding_neither_opens_nor_closes_a_budget(costs):
    """Ten times 0.1 is not quite 1 in floating point."""
    limit = sum(costs)
    policy = sustained(limit)
    account = SustainedAccount()
    for cost in costs:
        assert counter(account, policy).need(policy, cost, cost) is not None
        spend(account, cost, policy)
    assert counter(account, policy).need(policy, 0.1, 0.1) is None


def test_beside_others_the_worst_case_must_fit():
    account = SustainedAccount()
    counter(account).take(60)
    assert counter(account).need(BUDGET, cost=5, ceiling=50) is None
    assert counter(account).need(BUDGET, cost=5, ceiling=40) == 40


def test_a_request_alone_is_let_in_on_its_expected_cost_and_holds_all_that_is_left():
    account = SustainedAccount()
    spend(account, 60)
    assert counter(account).need(BUDGET, cost=5, ceiling=4096) == 40
    assert counter(account).need(BUDGET, cost=41, ceiling=4096) is None


def test_a_request_larger_than_the_whole_budget_runs_when_it_is_untouched():
    assert counter(SustainedAccount()).need(BUDGET, cost=500, ceiling=9000) == 100


def test_the_next_window_begins_empty_and_late_settlements_stay_in_the_old_one():
    account = SustainedAccount()
    old = counter(account)
    old.take(80)
    new = counter(account, at=NOON + HOUR)
    old.settle(80, 90)
    assert (new.used, new.reserved) == (0, 0)
    assert (old.used, old.reserved) == (90, 0)


def test_a_request_that_arrived_before_the_end_counts_in_that_window_though_let_in_after():
    account = SustainedAccount()
    before = NOON + HOUR - timedelta(milliseconds=1)
    spend(account, 70, at=before)
    spend(account, 1, at=NOON + HOUR)
    spend(account, 20, at=before)
    assert counter(account, at=before).used == 90
    assert counter(account, at=NOON + HOUR).used == 1


def test_a_clock_set_back_gives_no_fresh_budget():
    account = SustainedAccount()
    spend(account, 100, at=NOON, now=0)
    assert counter(account, at=NOON - 5 * HOUR, now=10).need(BUDGET, 1, 1) is None


def test_a_clock_that_ran_ahead_and_came_back_does_not_freeze_a_budget():
    account = SustainedAccount()
    for hours in (1000, 1001):
        spend(account, 100, at=NOON + hours * HOUR, now=0)
    assert counter(account, at=NOON, now=1).need(BUDGET, 1, 1) is None
    assert counter(account, at=NOON + HOUR, now=3601).need(BUDGET, 1, 1) == 1


def test_a_new_limit_holds_at_once_and_keeps_what_was_used():
    account = SustainedAccount()
    spend(account, 100)
    raised, lowered = sustained(120), sustained(50)
    assert counter(account, raised).need(raised, 20, 20) == 20
    assert counter(account, raised).need(raised, 21, 21) is None
    assert counter(account, lowered).need(lowered, 1, 1) is None


@pytest.mark.parametrize("change", [{"period": "day"}, {"timezone": "Asia/Kolkata"}])
def test_a_new_period_or_zone_keeps_what_was_used_and_what_is_held(change):
    account = SustainedAccount()
    spend(account, 30)
    running = counter(account)
    running.take(20)
    changed = sustained(100, **change)
    assert counter(account, changed).used == 30
    assert counter(account, changed).reserved == 20
    running.settle(20, 25)
    assert (counter(account, changed).used, counter(account, changed).reserved) == (55, 0)


def test_at_most_two_windows_are_kept():
    account = SustainedAccount()
    for hours in range(50):
        spend(account, 1, at=NOON + hours * HOUR, now=hours * 3600.0)
        assert len(account.counters) <= 2


def test_units_are_kept_exact_after_a_trillion():
    policy = sustained(4e12)
    account = SustainedAccount()
    spend(account, 2e12, policy)
    for _ in range(1000):
        spend(account, 1, policy)
    assert counter(account, policy).used == 2e12 + 1000
