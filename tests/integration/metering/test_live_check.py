"""A running gateway's own counters against the ledger: exactly, while it is busy."""

from __future__ import annotations

import random
import threading
from datetime import timedelta

import pytest

from metering import corrections, verify
from metering.core.accounts import LocalAccounts
from metering.core.hold import Admitted, Hold
from metering.corrections import CannotCorrect, CorrectionFeed, correct
from metering.journal import Journal
from metering.ledger import LedgerWriter, PolicyBudgets
from metering.live_check import OPEN, Cuts, compare
from metering.models import BudgetWindow, Correction, GatewayCheck
from metering.restore import load_accounts
from metering.services import write_sample
from tenants.core.snapshot import Limits
from tenants.models import AuditEntry
from tenants.selectors import current_version, load_snapshot
from tests import builders
from tests.integration.metering.ledger import (
    ACME,
    AT,
    ROOT,
    UMBRELLA,
    change_tier,
    differences,
    set_counter,
    used,
)
from tests.integration.metering.records import opening, record

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.store]


class Gateway:
    """What the gateway does with accounts and journal, one step after another."""

    def __init__(self, base, name="g1", at=AT):
        self.name, self.at, self.now = name, at, 1000.0
        self.snapshot = load_snapshot()
        self.accounts = LocalAccounts()
        self.feed = CorrectionFeed(name, load_accounts(self.accounts, self.snapshot, self.now, at))
        self.journal = Journal.start(base, name, file_bytes=5_000)
        self.budget_of = PolicyBudgets(lambda: self.snapshot)
        self.writer = LedgerWriter(self.journal, self.budget_of, interval_s=0.005)
        self.writer.start()
        self.cuts = Cuts(name, self.journal, self.accounts)
        self.open = {}

    def start(self, account=ACME, cost=10.0):
        one = record(tenant="acme", cost=cost, at=self.at, accounts=(account,))
        budgets = (self.budget_of(account),)
        hold = Hold(one.request_id, "acme", Limits(), budgets, 10, cost, 2 * cost)
        assert isinstance(self.accounts.reserve(hold, self.now, self.at), Admitted)
        self.journal.opened(opening(one))
        self.open[one.request_id] = one
        return one

    def end(self, one):
        del self.open[one.request_id]
        self.accounts.settle(one.request_id, 10, one.cost, self.now, self.at)
        self.journal.ended(one)

    def serve(self, *costs, account=ACME):
        for cost in costs:
            self.end(self.start(account, cost))

    def poll(self):
        self.feed.apply(self.feed.read(), self.accounts, self.budget_of, self.now)

    def cut(self, waiting=0):
        self.cuts.make(waiting, self.feed.seen, self.at)

    def check(self, waiting=0):
        """What it says of itself after all of it is saved."""
        self.cut(waiting)
        assert self.writer.flush(20)
        return list(verify.live(self.at))

    def used(self, account=ACME):
        return self.accounts.budgets((self.budget_of(account),), self.now, self.at)[0]["used"]


@pytest.fixture(autouse=True)
def policy(db):
    builders.apply_policy()


@pytest.fixture
def gateway(base):
    gateway = Gateway(base)
    yield gateway
    gateway.writer.stop(10)


def test_a_gateway_that_counts_right_says_so(gateway):
    gateway.serve(10.0, 0.1, 0.2)
    gateway.serve(5.0, account=UMBRELLA)
    gateway.start()
    assert gateway.check() == []
    check = GatewayCheck.objects.get()
    assert (check.gateway, check.at, check.whole_since) == ("g1", AT, AT)


def test_a_counter_that_is_off_is_told_and_mended_while_it_runs(gateway):
    gateway.serve(10.0, 20.0)
    gateway.accounts.correct(gateway.budget_of(ACME), 5.0, gateway.now, AT)
    [found] = gateway.check()
    assert (found.where, found.account, found.counted, found.ledger) == ("g1", ACME, 35, 30)
    version = current_version()
    assert verify.repair(ROOT, found, "checked")
    assert current_version() > version  # so that gateways look
    gateway.serve(1.0)
    gateway.poll()
    assert gateway.used() == 31
    assert gateway.check() == []
    assert differences() == []  # the ledger was right, and stays as it was
    entry = AuditEntry.objects.get(kind="budget_counter")
    assert (entry.old, entry.new, entry.reason) == (35, 30, "checked (in gateway g1)")


def test_a_second_repair_of_one_difference_does_nothing(gateway):
    gateway.serve(10.0)
    gateway.accounts.correct(gateway.budget_of(ACME), 5.0, gateway.now, AT)
    [found] = gateway.check()
    assert verify.repair(ROOT, found, "checked")
    assert not verify.repair(ROOT, found, "checked again")
    assert gateway.check() == []  # not there yet, but on its way
    gateway.poll()
    assert gateway.used() == 10
    assert AuditEntry.objects.filter(kind="budget_counter").count() == 1


def test_a_repair_for_one_gateway_leaves_another_alone(base, gateway):
    other = Gateway(base, "g2")
    gateway.serve(10.0)
    gateway.accounts.correct(gateway.budget_of(ACME), 5.0, gateway.now, AT)
    [found] = gateway.check()
    verify.repair(ROOT, found, "checked")
    other.poll()
    assert (other.used(), other.feed.seen) == (0, Correction.objects.get().id)
    other.writer.stop(10)


def test_a_stored_counter_that_is_put_right_shows_that_the_live_one_was_right(gateway):
    gateway.serve(10.0)
    assert gateway.writer.flush(20)
    set_counter(3.0)
    assert gateway.check() == []
    assert GatewayCheck.objects.get().differences[0]["ledger"] == 3
    [stored] = verify.stored(AT)
    assert verify.repair(ROOT, stored, "checked")
    assert gateway.check() == []
    assert gateway.used() == 10


def test_where_both_are_wrong_each_is_mended_by_the_ledger(gateway):
    gateway.serve(10.0)
    gateway.accounts.correct(gateway.budget_of(ACME), 5.0, gateway.now, AT)
    assert gateway.writer.flush(20)
    set_counter(3.0)
    [live] = gateway.check()
    [stored] = verify.stored(AT)
    assert (live.counted, live.ledger, stored.ledger) == (15, 10, 10)
    assert verify.repair(ROOT, stored, "checked")
    assert not verify.repair(ROOT, live, "checked")  # what it was told by has changed since
    gateway.poll()
    [again] = gateway.check()
    assert verify.repair(ROOT, again, "checked")
    gateway.poll()
    assert gateway.used() == used() == 10
    assert gateway.check() == differences() == []


def test_a_reservation_that_nobody_gives_back_is_told(gateway):
    gateway.start()
    lost = Hold("lost", "acme", Limits(), (gateway.budget_of(ACME),), 10, 10.0, 10.0)
    gateway.accounts.reserve(lost, gateway.now, AT)
    assert gateway.check(waiting=1) == []  # while it waits for a place it may have one
    [found] = gateway.check()
    assert (found.account, found.counted, found.ledger) == (OPEN, 2, 1)
    assert not verify.repair(ROOT, found, "nothing to add")


def test_all_is_in_the_database_only_once_its_cut_is_compared_too(gateway, monkeypatch):
    begun, go_on = threading.Event(), threading.Event()

    def slowly(cut, asked):
        begun.set()
        assert go_on.wait(20)
        return compare(cut, asked)

    monkeypatch.setattr("metering.ledger.compare", slowly)
    gateway.cut()
    assert begun.wait(20)
    assert not gateway.writer.flush(0)
    go_on.set()
    assert gateway.writer.flush(20)
    assert GatewayCheck.objects.get().at == AT


def test_many_accounts_are_compared_in_turn(gateway, monkeypatch):
    monkeypatch.setattr("metering.live_check.ACCOUNTS_A_CUT", 1)
    gateway.serve(10.0)
    gateway.serve(10.0, account=UMBRELLA)
    gateway.accounts.correct(gateway.budget_of(ACME), 1.0, gateway.now, AT)
    gateway.accounts.correct(gateway.budget_of(UMBRELLA), 2.0, gateway.now, AT)
    assert len(gateway.check()) == 1
    assert GatewayCheck.objects.get().whole_since is None
    assert {found.difference for found in gateway.check()} == {1, 2}
    assert GatewayCheck.objects.get().whole_since == AT
    gateway.accounts.correct(gateway.budget_of(ACME), -1.0, gateway.now, AT)
    assert {found.difference for found in gateway.check() + gateway.check()} == {2}


def test_a_changed_period_is_not_judged_until_its_window_has_ended(gateway):
    gateway.serve(10.0)
    assert gateway.check() == []
    change_tier("gold", period="day")
    gateway.snapshot = load_snapshot()
    gateway.serve(20.0)
    assert gateway.used() == 30
    assert gateway.check() == []


def test_a_gateway_that_is_gone_is_not_spoken_for(gateway):
    gateway.accounts.correct(gateway.budget_of(ACME), 1.0, gateway.now, AT)
    assert len(gateway.check()) == 1
    assert list(verify.live(AT + timedelta(minutes=1))) == []


def test_a_journal_with_cuts_is_recovered_like_any_other(base, budget_of):
    from metering.ledger import recover
    from metering.models import UsageRow

    dead = Journal.start(base, "dead")
    cuts = Cuts("dead", dead, LocalAccounts())
    for _ in range(3):
        cuts.make(0, 0, AT)
        dead.ended(record())
        cuts.make(0, 0, AT)
    dead.opened(opening(record()))
    dead.close()
    found = recover(base, budget_of)
    assert (found.records, found.abandoned) == (3, 1)
    assert UsageRow.objects.count() == 4
    assert not GatewayCheck.objects.exists()


@pytest.mark.parametrize("seed", range(4))
def test_whatever_happens_in_whatever_order_a_right_counter_is_never_called_wrong(base, seed):
    """Requests that overlap, corrections that arrive late, a restart, cuts in between."""
    rng, at = random.Random(seed), AT
    gateway = Gateway(base)
    for step in range(250):
        chance = rng.random()
        if chance < 0.4:
            gateway.start(rng.choice((ACME, UMBRELLA)), rng.choice((0.1, 0.7, 12.0)))
        elif chance < 0.75 and gateway.open:
            gateway.end(rng.choice(list(gateway.open.values())))
        elif chance < 0.80:
            correct(ROOT, rng.choice((ACME, UMBRELLA)), rng.choice((0.3, 5.0)), "test", at)
        elif chance < 0.88:
            gateway.poll()
        elif chance < 0.99:
            gateway.cut()
        elif step > 50:
            for one in list(gateway.open.values()):
                gateway.end(one)
            assert gateway.check() == []
            gateway.writer.stop(20)
            gateway = Gateway(base, f"g{step}")
    assert gateway.check() == []
    gateway.poll()
    assert gateway.check() == []
    assert differences() == []
    gateway.writer.stop(20)


# --- corrections ----------------------------------------------------------------------------


def test_a_correction_unlocks_a_tenant_that_a_wrong_cost_locked_out(gateway):
    """Cases R26: the price was a million times too high."""
    limit = gateway.budget_of(ACME).cost
    gateway.serve(limit + 1e6)
    refused = Hold("r", "acme", Limits(), (gateway.budget_of(ACME),), 10, 10.0, 10.0)
    assert not isinstance(gateway.accounts.reserve(refused, gateway.now, AT), Admitted)
    assert gateway.writer.flush(20)
    assert correct(ROOT, ACME, -limit, "wrong price", AT).used == 1e6
    gateway.poll()
    assert isinstance(gateway.accounts.reserve(refused, gateway.now, AT), Admitted)
    assert gateway.used() == used() == 1e6
    assert differences() == []
    entry = AuditEntry.objects.get(kind="budget_counter")
    assert (entry.name, entry.old, entry.new) == (ACME, limit + 1e6, 1e6)
    assert entry.reason == "wrong price"


def test_a_debit_opens_a_window_that_nothing_was_used_in(gateway):
    assert correct(ROOT, UMBRELLA, 70.0, "used elsewhere", AT).used == 70
    gateway.poll()
    assert gateway.used(UMBRELLA) == 70
    assert gateway.check() == []
    restarted = Gateway(gateway.journal.folder.parent, "g2")
    assert restarted.used(UMBRELLA) == 70
    restarted.writer.stop(10)


def test_a_correction_that_a_start_has_seen_is_not_taken_twice(base):
    correct(ROOT, ACME, 70.0, "used elsewhere", AT)
    started = Gateway(base)
    started.poll()
    assert started.used() == 70
    started.writer.stop(10)


def test_what_was_not_used_cannot_be_given_back_and_burst_budgets_have_no_ledger():
    for account, units, says in (
        (ACME, -1.0, "no more can be given back"),
        ("tenant:acme/burst", -1.0, "refills by itself"),
        ("tenant:nobody/hourly", 1.0, "no budget has the account"),
        (ACME, 0.0, "not zero"),
        (ACME, float("nan"), "not zero"),
        (ACME, float("inf"), "not zero"),
    ):
        with pytest.raises(CannotCorrect, match=says):
            correct(ROOT, account, units, "a reason", AT)
    with pytest.raises(CannotCorrect, match="reason"):
        correct(ROOT, ACME, 1.0, " ", AT)
    assert not Correction.objects.exists()
    assert not BudgetWindow.objects.exists()
    assert not AuditEntry.objects.filter(kind="budget_counter").exists()


def test_a_restart_in_a_window_whose_period_changed_counts_corrections_too(base, gateway):
    gateway.serve(10.0)
    assert gateway.writer.flush(20)
    correct(ROOT, ACME, 5.0, "by hand", AT)
    change_tier("gold", period="day")
    gateway.snapshot = load_snapshot()
    gateway.serve(20.0)
    assert gateway.writer.flush(20)
    started = Gateway(base, "g2")
    assert started.used() == 35
    started.writer.stop(10)


def test_a_start_between_two_corrections_takes_each_once(base, monkeypatch):
    """One is made while the windows are read: they may hold it, or not."""
    from metering import restore

    real, late = restore._sustained, [4.0]

    def sustained(*given):
        found = list(real(*given))
        if late:
            corrections.correct(ROOT, ACME, late.pop(), "meanwhile", AT)
        return found

    monkeypatch.setattr(restore, "_sustained", sustained)
    started = Gateway(base)
    started.poll()
    assert started.used() == 4
    started.writer.stop(10)


# --- running gateways -----------------------------------------------------------------------


def test_verify_waits_for_every_running_gateway(gateway):
    from datetime import UTC, datetime

    began = datetime.now(UTC)
    write_sample("g1", {"gateway": "g1"}, began)
    turns = iter([True, True, False])
    assert verify.wait_for_gateways(began, lambda: next(turns)) == ["g1"]
    gateway.at = datetime.now(UTC)
    gateway.check()
    assert verify.wait_for_gateways(began, lambda: False) == []
