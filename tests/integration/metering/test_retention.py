"""Two hundred thousand old records go in chunks, inside the database; roll-ups and windows stay."""

from __future__ import annotations

import tracemalloc
from datetime import UTC, datetime, timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from metering import tasks
from metering.models import (
    Alert,
    BudgetWindow,
    Correction,
    GatewayCheck,
    TouchedMinute,
    UsageDay,
    UsageMinute,
    UsageRow,
)
from tests import builders
from tests.integration.metering.ledger import ACME, save

pytestmark = [pytest.mark.django_db, pytest.mark.store]
MANY = 200_000
NUMBERS = {
    "sqlite": "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < %s) ",
    "postgresql": "WITH n AS (SELECT generate_series(1, %s) AS i) ",
}


def copies(row: UsageRow, count: int) -> None:
    """Rows like this one, made by the database itself."""
    fields = [f.column for f in UsageRow._meta.fields if f.column not in ("id", "request_id")]
    named = ", ".join(f'"{name}"' for name in fields)
    with connection.cursor() as cursor:
        cursor.execute(
            f"INSERT INTO metering_usagerow (request_id, {named}) "
            f"{NUMBERS[connection.vendor]} SELECT 'copy ' || n.i, {named} "
            "FROM n, metering_usagerow u WHERE u.id = %s",
            [count, row.id],
        )
        cursor.execute("ANALYZE metering_usagerow")  # as the server does by itself, but later


def test_a_great_many_old_records_are_forgotten_in_the_database():
    builders.apply_policy()
    now = datetime.now(UTC)
    save(1.0, at=now - timedelta(days=36))
    save(1.0, at=now - timedelta(days=34))
    copies(UsageRow.objects.order_by("at").first(), MANY)
    TouchedMinute.objects.all().delete()
    tasks.purge_records(keep_days=99)  # what is loaded once is not what is measured
    tracemalloc.start()
    with CaptureQueriesContext(connection) as asked:
        assert tasks.purge_records() == MANY + 1
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert UsageRow.objects.count() == 1
    assert BudgetWindow.objects.count() == 2
    assert most < 8 * 2**20  # the rows themselves would be some hundred MiB
    deletes = [q["sql"] for q in asked.captured_queries if q["sql"].startswith("DELETE")]
    assert MANY / tasks.ROWS_A_DELETE < len(deletes) < MANY / tasks.ROWS_A_DELETE + 20
    assert all(len(sql) < 1_000 for sql in deletes)  # no list of ids


def test_each_kind_is_kept_for_its_own_time(settings):
    settings.FAIRLANE_KEEP_RECORDS_DAYS, settings.FAIRLANE_KEEP_ROLLUPS_DAYS = 50, 60
    settings.FAIRLANE_KEEP_MINUTES_DAYS = 3
    builders.apply_policy()
    now = datetime.now(UTC)
    for days in (49, 51, 59, 61):
        at = now - timedelta(days=days)
        save(1.0, at=at)
        Correction.objects.create(account=ACME, at=at, units=1.0, actor="root", reason="test")
        Alert.objects.create(
            kind="k", subject=str(days), message="m", first_at=at, last_at=at, resolved_at=at
        )
    Alert.objects.create(
        kind="k", subject="open", message="m", first_at=now - timedelta(days=99), last_at=now
    )
    tasks.roll_up()
    tasks.roll_up_days()
    tasks.purge_records()
    assert (UsageRow.objects.count(), Correction.objects.count()) == (1, 1)
    assert (UsageMinute.objects.count(), UsageDay.objects.count()) == (0, 3)
    assert BudgetWindow.objects.count() == 3
    assert Alert.objects.count() == 4


def test_a_gateways_check_is_forgotten_with_its_samples():
    now = datetime.now(UTC)
    GatewayCheck.objects.create(gateway="gone", at=now - timedelta(hours=2))
    GatewayCheck.objects.create(gateway="here", at=now)
    tasks.purge_samples()
    assert GatewayCheck.objects.get().gateway == "here"
