"""Stored counters are what the records say; where one is not, it is found, told and mended."""

from __future__ import annotations

import threading
from datetime import timedelta

import pytest
from django.db import connections

from metering import ledger_check, store, tasks, verify
from metering.core.windows import window_at
from metering.models import Alert, BudgetWindow, UsageRow
from tenants.errors import NotAllowed
from tenants.models import AuditEntry
from tenants.services import Actor
from tests import builders
from tests.integration.metering.ledger import (
    ACME,
    AT,
    DAY,
    HOUR,
    ROOT,
    UMBRELLA,
    apply_calm_policy,
    change_tier,
    differences,
    findings,
    minutes,
    save,
    set_counter,
    used,
)

pytestmark = [pytest.mark.django_db, pytest.mark.store]


@pytest.fixture(autouse=True)
def policy(db):
    builders.apply_policy()


def mend(finding):
    return verify.repair(ROOT, finding, "checked by hand")


def test_counters_that_the_ledger_made_agree_with_it():
    for hour in range(30):
        save(0.1, 0.2, 0.7, 1e6 / 3, at=AT - timedelta(hours=hour))
    save(*[0.1] * 50, account=UMBRELLA, at=AT)
    assert differences() == []
    assert BudgetWindow.objects.count() == 31


def test_a_counter_that_lost_something_is_told_with_account_window_and_difference():
    save(30.0, 12.0)
    save(5.0, account=UMBRELLA)
    set_counter(40.0)
    [found] = findings()
    assert (found.where, found.account, found.window) == ("stored", ACME, HOUR)
    assert (found.counted, found.ledger, found.difference) == (40, 42, -2)


def test_a_repair_sets_it_to_the_records_and_is_on_the_record_itself():
    save(30.0, 12.0)
    set_counter(40.0)
    assert mend(findings()[0])
    assert (used(), findings()) == (42, [])
    entry = AuditEntry.objects.get(kind="budget_counter")
    assert (entry.name, entry.field, entry.old, entry.new) == (ACME, "used", 40, 42)
    assert (entry.actor, entry.source, entry.reason) == ("root", "command", "checked by hand")


def test_a_counter_that_is_not_there_is_found_and_made():
    save(30.0)
    BudgetWindow.objects.all().delete()
    [found] = findings()
    assert (found.account, found.window, found.counted, found.ledger) == (ACME, HOUR, 0, 30)
    assert mend(found)
    assert (used(), findings()) == (30, [])


def test_whoever_may_not_edit_policy_repairs_nothing():
    save(30.0)
    set_counter(1.0)
    with pytest.raises(NotAllowed):
        verify.repair(Actor("olga", "page", role="operator"), findings()[0], "because")
    assert used() == 1


def test_a_batch_that_is_saved_while_a_counter_is_mended_is_not_lost(monkeypatch):
    """It lands after the counter was read and before it is set: the swap must fail."""
    save(30.0)
    set_counter(1.0)
    found, real, late = findings()[0], ledger_check._count, [7.0, 8.0]

    def count(*given):
        counted = real(*given)
        if late:
            save(late.pop())
        return counted

    monkeypatch.setattr(ledger_check, "_count", count)
    assert mend(found)
    assert used() == 45
    assert AuditEntry.objects.filter(kind="budget_counter").count() == 1


@pytest.mark.parametrize("lost", [0, 3])
def test_a_period_that_was_changed_in_a_running_window_is_no_difference_but_a_loss_is(lost):
    save(10.0)
    change_tier("gold", period="day")
    save(20.0)
    change_tier("gold", period="minute")
    save(30.0, 4.0)
    change_tier("gold", period="hour")
    save(40.0)
    assert differences() == []
    assert BudgetWindow.objects.count() == 3
    row = BudgetWindow.objects.order_by("id").first()
    BudgetWindow.objects.filter(id=row.id).update(used=row.used - lost)
    if lost:
        [found] = findings()
        assert (found.counted, found.ledger) == (101, 104)
        assert mend(found)
    assert differences() == []
    assert used() == 104


def test_a_repair_of_overlapping_windows_takes_away_what_is_too_much():
    save(10.0)
    change_tier("gold", period="day")
    save(20.0)
    BudgetWindow.objects.update(used=500.0)
    assert mend(findings()[0])
    assert (used(), differences()) == (30, [])


def test_a_removed_budget_still_counts_what_was_let_in_under_it():
    from metering.ledger import PolicyBudgets
    from tenants.selectors import load_snapshot
    from tests.integration.metering.records import ended, record

    now = [load_snapshot()]
    budget_of = PolicyBudgets(lambda: now[0])
    assert budget_of(ACME)
    document = builders.policy()
    document["tiers"][0]["budgets"] = []
    builders.apply_policy(document, "no budgets")
    now[0] = load_snapshot()
    store.save([ended(record(cost=9.0, at=AT, accounts=(ACME,)))], budget_of)
    assert used() == 9
    assert differences() == []


def test_a_budget_counts_that_was_gone_before_its_first_record_was_written():
    from metering.ledger import PolicyBudgets
    from tenants.selectors import load_snapshot
    from tests.integration.metering.records import ended, record

    now = [load_snapshot()]
    budget_of = PolicyBudgets(lambda: now[0])
    budget_of.note()  # as the gateway does; nothing is written under this policy yet
    document = builders.policy()
    document["tiers"][0]["budgets"] = []
    builders.apply_policy(document, "no budgets")
    now[0] = load_snapshot()
    budget_of.note()
    store.save([ended(record(cost=9.0, at=AT, accounts=(ACME,)))], budget_of)
    builders.apply_policy(builders.policy(), "budgets again")
    assert (used(), differences()) == (9, [])


def test_windows_whose_records_are_gone_are_not_judged(settings):
    long_ago = AT - timedelta(days=settings.FAIRLANE_KEEP_RECORDS_DAYS + 1)
    save(10.0, at=long_ago)
    UsageRow.objects.all().delete()
    assert differences() == []


def test_the_frequent_check_looks_at_short_recent_windows_only(django_assert_max_num_queries):
    save(10.0)
    save(10.0, at=AT - timedelta(hours=20))
    save(10.0, account=UMBRELLA)
    BudgetWindow.objects.update(used=1.0)
    with django_assert_max_num_queries(12):
        assert differences(whole=False) == [(ACME, 1, 10)]
    just_over = HOUR.end + minutes(14)
    assert differences(just_over, whole=False) == [(ACME, 1, 10)]
    assert differences(HOUR.end + minutes(16), whole=False) == []
    assert len(differences()) == 3


def test_a_changed_period_is_no_difference_for_the_frequent_check_either():
    """The minutes that were counted singly have ended long ago; the hour that has them runs."""
    change_tier("gold", period="minute")
    for minute in range(30):
        save(1.0, at=HOUR.start + minutes(minute))
    change_tier("gold", period="hour")
    save(1.0, at=HOUR.end - minutes(1))
    assert differences(HOUR.end + minutes(5), whole=False) == []
    BudgetWindow.objects.filter(window_start=HOUR.start + minutes(3)).update(used=0)
    assert differences(HOUR.end + minutes(5), whole=False) == [(ACME, 30, 31)]


def test_a_daily_window_of_a_zone_is_counted_over_its_own_hours():
    change_tier("gold", period="day")
    tokyo = window_at("day", "Asia/Tokyo", AT)
    for at in (tokyo.start, tokyo.end - minutes(0.001), tokyo.start - minutes(0.001), tokyo.end):
        save(10.0, at=at)
    assert differences(tokyo.end + minutes(1)) == []
    assert used(at=tokyo.start) == 20
    assert tokyo != DAY


# --- alerts ---------------------------------------------------------------------------------


def test_a_difference_is_one_alert_however_often_it_is_seen_until_it_is_gone(monkeypatch):
    save(10.0)
    set_counter(3.0)
    for number in range(3):
        verify.raise_alerts(findings(), whole=True, at=AT + minutes(number))
    alert = Alert.objects.get()
    assert (alert.kind, alert.subject, alert.count) == ("ledger", f"{ACME} (stored)", 3)
    assert (alert.first_at, alert.last_at, alert.resolved_at) == (AT, AT + minutes(2), None)
    assert "difference -7" in alert.message
    set_counter(10.0)
    verify.raise_alerts(findings(), whole=False, at=AT + minutes(3))
    assert Alert.objects.get().resolved_at is None  # its window might not have been looked at
    verify.raise_alerts(findings(), whole=True, at=AT + minutes(4))
    assert Alert.objects.get().resolved_at == AT + minutes(4)
    set_counter(3.0)
    verify.raise_alerts(findings(), whole=True, at=AT + minutes(5))
    assert Alert.objects.filter(resolved_at=None).count() == 1


def test_the_task_checks_and_alerts(monkeypatch):
    from datetime import UTC, datetime

    apply_calm_policy()
    now = datetime.now(UTC)
    save(10.0, at=now)
    assert (tasks.check_ledger(), tasks.check_ledger(whole=True)) == (0, 0)
    set_counter(3.0)
    assert (tasks.check_ledger(), tasks.check_ledger(whole=True)) == (1, 1)
    assert Alert.objects.get().count == 2


# --- at the same time -----------------------------------------------------------------------


@pytest.mark.django_db(transaction=True)
def test_a_busy_ledger_is_never_called_wrong():
    stop, written = threading.Event(), threading.Event()

    def write():
        try:
            while not stop.is_set():
                save(*[0.1] * 20)
                written.set()
        finally:
            connections.close_all()

    thread = threading.Thread(target=write)
    thread.start()
    try:
        assert written.wait(20)
        for _ in range(30):
            assert differences() == []
    finally:
        stop.set()
        thread.join()


@pytest.mark.django_db(transaction=True)
def test_a_busy_ledger_is_mended_and_loses_nothing():
    stop, written = threading.Event(), threading.Event()

    def write():
        try:
            while not stop.wait(0.02):  # a ledger writes a batch now and then, not without pause
                save(1.0)
                written.set()
        finally:
            connections.close_all()

    save(50.0)
    set_counter(7.0)
    found = findings()[0]
    thread = threading.Thread(target=write)
    thread.start()
    try:
        assert written.wait(20)
        assert mend(found)
    finally:
        stop.set()
        thread.join()
    assert used() == 50 + UsageRow.objects.count() - 1
    assert differences() == []
