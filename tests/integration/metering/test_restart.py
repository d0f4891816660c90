"""A starting gateway takes up what the ledger says."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from types import MappingProxyType

import pytest

from metering import store
from metering.core.accounts import LocalAccounts
from metering.ledger import PolicyBudgets
from metering.models import BudgetWindow
from metering.restore import budget_index, load_accounts
from tenants.core.snapshot import (
    ApplicationPolicy,
    KeyPolicy,
    Limits,
    PolicySnapshot,
    TenantPolicy,
)
from tests.integration.metering.records import BURST, DAILY, HOURLY, NOON, ended, record

pytestmark = [pytest.mark.django_db, pytest.mark.store]
LIMITS = Limits(requests_per_minute=100, tokens_per_minute=10_000)
BOT = replace(HOURLY, account="application:alice/bot/hourly")


def policy(hourly=HOURLY):
    alice = TenantPolicy(
        name="alice",
        tier="gold",
        weight=1,
        lane="standard",
        allowed_lanes=("standard",),
        limits=LIMITS,
        budgets=(hourly, BURST),
        models=frozenset(),
        applications=MappingProxyType({"bot": ApplicationPolicy("bot", "standard", 1, (BOT,))}),
    )
    key = KeyPolicy("k1", "alice", "bot", budgets=(DAILY,))
    empty = MappingProxyType({})
    return PolicySnapshot(
        1, 1, (), empty, empty, {"alice": alice}, MappingProxyType({b"hash": key}), empty
    )


def started(snapshot, at):
    accounts = LocalAccounts()
    load_accounts(accounts, snapshot, 5_000.0, at)
    return accounts


def used(accounts, at, *budgets):
    return [budget["used"] for budget in accounts.budgets(budgets, 5_000.0, at)]


def save(*records, snapshot=None):
    store.save([ended(one) for one in records], PolicyBudgets(lambda: snapshot or policy()))


def test_every_budget_of_every_owner_is_known_by_its_account():
    assert set(budget_index(policy())) == {b.account for b in (HOURLY, BURST, DAILY, BOT)}


def test_the_writer_follows_the_policy_of_the_moment():
    now = [policy()]
    budgets = PolicyBudgets(lambda: now[0])
    assert budgets(HOURLY.account) == HOURLY
    now[0] = policy(replace(HOURLY, cost=7))
    assert budgets(HOURLY.account).cost == 7
    assert budgets("tenant:nobody/hourly") is None


def test_budgets_rates_and_burst_go_on_where_they_were():
    save(
        record(at=NOON - timedelta(hours=1), cost=400.0),
        record(at=NOON - timedelta(seconds=90), cost=100.0),
        record(at=NOON - timedelta(seconds=30), cost=200.0),
    )
    accounts = started(policy(), NOON)
    assert used(accounts, NOON, HOURLY, DAILY) == [200, 700]  # it is 12:00:30
    assert used(accounts, NOON, BURST) == [pytest.approx(50.0)]  # 200 − 30 · 5
    rates = accounts.rates("alice", LIMITS, 5_000.0)
    assert (rates.remaining_requests, rates.remaining_tokens) == (99, 9_970)


def test_refused_requests_are_not_taken_up_as_use():
    save(record(at=NOON, cost=0.0, finish_reason="throttled", status=429))
    accounts = started(policy(), NOON)
    assert accounts.rates("alice", LIMITS, 5_000.0).remaining_requests == 100


def test_a_window_that_has_ended_is_not_taken_up():
    save(record(cost=400.0))
    later = NOON + timedelta(hours=1)
    assert used(started(policy(), later), later, HOURLY, DAILY) == [0, 400]


def test_a_period_that_was_changed_in_mid_window_is_counted_from_the_records():
    save(record(at=NOON - timedelta(hours=3), cost=70.0), record(cost=400.0))
    by_day = policy(replace(HOURLY, period="day"))
    assert used(started(by_day, NOON), NOON, by_day.tenants["alice"].budgets[0]) == [470]
    save(record(cost=5.0), snapshot=by_day)
    assert BudgetWindow.objects.filter(account=HOURLY.account).count() == 3
    assert used(started(by_day, NOON), NOON, by_day.tenants["alice"].budgets[0]) == [475]


def test_starting_costs_a_bounded_number_of_queries(django_assert_max_num_queries):
    save(*[record(cost=1.0) for _ in range(50)])
    with django_assert_max_num_queries(4):
        started(policy(), NOON)
