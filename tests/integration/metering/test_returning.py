"""A tenant that leaves the policy around a restart and comes back in the same budget window."""

from __future__ import annotations

import pytest

from metering.core.accounts import LocalAccounts
from metering.corrections import CorrectionFeed, correct
from metering.journal import Journal
from metering.ledger import PolicyBudgets, recover
from metering.models import BudgetWindow
from metering.restore import load_accounts
from tenants import services
from tenants.selectors import current_revision, load_snapshot
from tests import builders
from tests.integration.metering.ledger import ACME, AT, HOUR, ROOT, differences, save, used
from tests.integration.metering.records import opening, record

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.store]


@pytest.fixture(autouse=True)
def policy_in_force():
    builders.apply_policy()


def without(name):
    document = builders.policy()
    document["tenants"] = [each for each in document["tenants"] if each["name"] != name]
    builders.apply_policy(document, "gone")


def left_by_a_killed_gateway(base, *records, running=()):
    """Its journal, with `records` ended in it and `running` begun only."""
    journal = Journal.start(base, "g1")
    for one in (*records, *running):
        journal.opened(opening(one, policy_revision=one.policy_revision))
    for one in records:
        journal.ended(one)
    journal.close()


def of_acme(cost=50.0, account=ACME, **fields):
    revision = current_revision()
    return record(
        tenant="acme", at=AT, cost=cost, accounts=(account,), policy_revision=revision, **fields
    )


def recovered(base):
    return recover(base, PolicyBudgets(load_snapshot))


def test_what_was_recovered_while_it_was_out_counts_when_it_is_back(base):
    left_by_a_killed_gateway(base, of_acme(50.0), of_acme(70.0), running=[of_acme()])
    without("acme")
    assert recovered(base).records == 2
    builders.apply_policy(reason="back again")
    assert used() == 50.0 + 70.0 + 55.0  # the one that ran: as it was estimated
    assert differences() == []


def test_the_window_is_the_one_of_the_policy_that_let_it_in(base):
    left_by_a_killed_gateway(base, of_acme())
    without("acme")
    recovered(base)
    row = BudgetWindow.objects.get()
    assert (row.account, row.window_start, row.window_end) == (ACME, HOUR.start, HOUR.end)


def test_a_revision_that_is_unknown_stops_no_recovery(base):
    stranger = record(tenant="nobody", accounts=("tenant:nobody/hourly",), policy_revision=999)
    left_by_a_killed_gateway(base, stranger, of_acme())
    without("acme")
    assert recovered(base).records == 2
    assert used() == 50.0


def test_a_key_that_was_revoked_meanwhile_keeps_its_counter_true(base):
    key, _ = services.create_key(
        "acme",
        "support-bot",
        "bot",
        budgets=[{"name": "daily", "kind": "sustained", "cost": 900.0, "period": "day"}],
        actor=builders.ROOT,
    )
    account = f"key:{key.public_id}/daily"
    left_by_a_killed_gateway(base, of_acme(account=account))
    services.revoke_key(key.public_id, actor=builders.ROOT, reason="found in a repository")
    recovered(base)
    assert used(account) == 50.0


# --- the counters of a gateway that runs when it comes back -------------------------------------


class Running:
    """The part of a gateway that follows the policy."""

    def __init__(self):
        self.snapshot = load_snapshot()
        self.accounts = LocalAccounts()
        self.feed = CorrectionFeed("g1", load_accounts(self.accounts, self.snapshot, 1000.0, AT))

    def follow(self):
        new = load_snapshot()
        counted = self.accounts.sustained()
        found, returning = self.feed.read_change(counted, self.snapshot, new, AT)
        self.snapshot = new
        self.feed.apply(found, self.accounts, PolicyBudgets(lambda: new), 1000.0)
        self.accounts.restore(returning, (), 1000.0, AT)
        return len(returning)

    def used(self):
        budget = next(b for b in self.snapshot.tenants["acme"].budgets if b.account == ACME)
        return self.accounts.budgets((budget,), 1000.0, AT)[0]["used"]


def test_it_takes_up_what_was_used_before_the_restart():
    save(300.0)
    without("acme")
    gateway = Running()
    builders.apply_policy(reason="back again")
    gateway.follow()
    assert gateway.used() == 300.0


def test_a_correction_that_comes_with_it_counts_once():
    save(300.0)
    without("acme")
    gateway = Running()
    builders.apply_policy(reason="back again")
    correct(ROOT, ACME, -100.0, "wrong price", AT)
    gateway.follow()
    assert gateway.used() == 200.0 == used()


def test_what_a_gateway_counts_itself_is_not_overwritten():
    save(300.0)
    gateway = Running()
    assert gateway.used() == 300.0
    without("acme")
    gateway.follow()
    BudgetWindow.objects.update(used=1.0)
    builders.apply_policy(reason="back again")
    assert gateway.follow() == 0
    assert gateway.used() == 300.0
