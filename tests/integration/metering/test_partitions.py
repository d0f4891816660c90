"""On PostgreSQL usage records lie in one table a day; none ever fails for want of one."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext

from metering import partitions, store, tasks
from metering.models import TouchedMinute, UsageRow
from tests.integration.metering.records import ended, record

pytestmark = [pytest.mark.django_db, pytest.mark.store, pytest.mark.postgres]
migration: Any = importlib.import_module("metering.migrations.0006_usage_in_partitions")
TODAY = datetime.now(UTC).replace(hour=12)
FAR = datetime(2041, 5, 9, 23, 59, 59, 999_999, tzinfo=UTC)


def save(*moments: datetime) -> None:
    store.save([ended(record(at=at)) for at in moments], lambda account: None)
    TouchedMinute.objects.all().delete()


def place_of(at: datetime) -> str:
    with connection.cursor() as cursor:
        cursor.execute("SELECT tableoid::regclass::text FROM metering_usagerow WHERE at = %s", [at])
        return str(cursor.fetchone()[0])


def run(*statements: str) -> None:
    with connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)


def days_ago(days: int) -> datetime:
    return TODAY - timedelta(days=days)


def test_the_days_to_come_have_theirs_before_they_begin() -> None:
    tasks.make_partitions()
    for days in range(8):
        assert any(
            since <= TODAY + timedelta(days=days) < until
            for since, until in partitions.existing().values()
        )
    assert tasks.make_partitions() == 0


def test_a_record_of_an_unforeseen_day_is_taken_and_moved_into_that_days_own() -> None:
    save(FAR)
    assert place_of(FAR) == partitions.DEFAULT
    before = UsageRow.objects.get()
    tasks.make_partitions()
    assert place_of(FAR) == "metering_usagerow_20410509"
    assert UsageRow.objects.get() == before
    save(FAR + timedelta(microseconds=1))
    assert place_of(FAR + timedelta(microseconds=1)) == partitions.DEFAULT  # the day after


def test_a_request_that_was_saved_before_its_day_had_a_table_is_not_saved_again() -> None:
    one = record(at=FAR)
    store.save([ended(one)], lambda account: None)
    tasks.make_partitions()
    more = [ended(one), ended(record(at=FAR))]
    assert store.save(more, lambda account: None) == 1
    assert UsageRow.objects.count() == 2


def test_old_days_go_by_dropping_their_tables() -> None:
    save(days_ago(37), days_ago(36), days_ago(36), days_ago(34))
    tasks.make_partitions()
    with CaptureQueriesContext(connection) as asked:
        assert tasks.purge_records() == 3
    dropped = [q["sql"] for q in asked.captured_queries if q["sql"].startswith("DROP TABLE")]
    assert len(dropped) == 2
    assert [row.at for row in UsageRow.objects.all()] == [days_ago(34)]
    assert place_of(days_ago(34)) != partitions.DEFAULT


def test_what_is_not_rolled_up_yet_keeps_its_table() -> None:
    save(days_ago(36))
    tasks.make_partitions()
    TouchedMinute.objects.create(minute=days_ago(36))
    assert tasks.purge_records() == 0
    assert UsageRow.objects.exists()


def test_records_that_are_kept_for_long_lie_by_the_month(settings: Any) -> None:
    settings.FAIRLANE_KEEP_RECORDS_DAYS = 400
    old, older = datetime(2025, 1, 31, 5, tzinfo=UTC), datetime(2024, 12, 31, 5, tzinfo=UTC)
    save(old, older)
    tasks.make_partitions()
    assert place_of(old) == "metering_usagerow_202501"
    assert place_of(older) == "metering_usagerow_202412"
    assert tasks.purge_records(keep_days=(TODAY - datetime(2025, 1, 2, tzinfo=UTC)).days) == 1
    assert [row.at for row in UsageRow.objects.all()] == [old]


def test_a_month_that_was_begun_by_days_goes_on_by_days(settings: Any) -> None:
    first = datetime(2041, 5, 2, 5, tzinfo=UTC)
    partitions.make([first])
    settings.FAIRLANE_KEEP_RECORDS_DAYS = 400
    partitions.make([FAR])
    assert {"metering_usagerow_20410502", "metering_usagerow_20410509"} <= set(
        partitions.existing()
    )


def test_a_role_that_does_not_own_the_table_keeps_and_forgets_records_all_the_same() -> None:
    run(
        "CREATE ROLE fairlane_app_test",
        "GRANT USAGE ON SCHEMA public TO fairlane_app_test",
        "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO fairlane_app_test",
        "GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO fairlane_app_test",
        "SET LOCAL ROLE fairlane_app_test",
    )
    save(days_ago(36), days_ago(34))
    assert tasks.make_partitions() == 0
    assert tasks.purge_records() == 1
    assert UsageRow.objects.get().at == days_ago(34)


def test_that_role_may_do_it_once_the_table_is_its_own() -> None:
    """The line of docs/operations.md."""
    run(
        "CREATE ROLE fairlane_app_test",
        "GRANT USAGE, CREATE ON SCHEMA public TO fairlane_app_test",
        "ALTER TABLE metering_usagerow OWNER TO fairlane_app_test",
        *(f"ALTER TABLE {name} OWNER TO fairlane_app_test" for name in partitions.existing()),
        "ALTER TABLE metering_usagerow_default OWNER TO fairlane_app_test",
        "SET LOCAL ROLE fairlane_app_test",
    )
    assert partitions.make([FAR]) == 1
    assert partitions.forget(FAR + timedelta(days=2)) == 0
    assert "metering_usagerow_20410509" not in partitions.existing()


def test_the_migration_moves_what_there_is_and_back() -> None:
    save(days_ago(50), TODAY, FAR)
    found = list(UsageRow.objects.order_by("id").values())
    editor = SimpleNamespace(connection=connection)
    run("SET CONSTRAINTS ALL IMMEDIATE")
    migration.put_together(None, editor)
    assert list(UsageRow.objects.order_by("id").values()) == found
    more = UsageRow.objects.create(request_id="one more", at=TODAY, tenant="alice")
    assert more.id > found[-1]["id"]
    more.delete()
    migration.divide(None, editor)
    assert list(UsageRow.objects.order_by("id").values()) == found
    assert place_of(FAR) == "metering_usagerow_20410509"
    save(TODAY)
    assert UsageRow.objects.order_by("id").values_list("id", flat=True).last() > found[-1]["id"]
    assert not connection.introspection.table_names().count(migration.OLD)


@contextmanager
def reading(table: str) -> Iterator[None]:
    """Somebody's long export, in a session of its own."""
    with closing(connection.copy()) as other:
        other.set_autocommit(False)
        with other.cursor() as cursor:
            cursor.execute(f"SELECT count(*) FROM {table}")
            yield
        other.rollback()


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("work", [tasks.make_partitions, tasks.purge_records])
def test_a_long_reader_is_not_waited_for(
    work: Callable[[], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who waits for the lock makes every gateway's batch wait behind it."""
    monkeypatch.setattr(partitions, "LOCK_WAIT", "SET LOCAL lock_timeout = '20ms'")
    save(days_ago(36))
    if work is tasks.purge_records:
        tasks.make_partitions()
        monkeypatch.setattr(partitions, "whole", lambda before: days_ago(99))
    with reading("metering_usagerow"):
        assert work() == 0
        with transaction.atomic():
            save(TODAY)
    assert work() > 0
    run(*(f"DROP TABLE {name}" for name, (a, _) in partitions.existing().items() if a > TODAY))
