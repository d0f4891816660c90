"""What was stays in the database too: whoever can write to it adds to history, and no more."""

from __future__ import annotations

import pytest
from django.db import Error, IntegrityError, connection, transaction

from tenants import services
from tenants.models import AuditEntry, PolicyRevision
from tests import erasing
from tests.erasing import FOUND, forbid_emptying

pytestmark = [pytest.mark.django_db, pytest.mark.store, pytest.mark.usefixtures("policy")]

TABLES = erasing.history.TABLES


def refused(statement: str) -> str:
    with pytest.raises(IntegrityError) as told, transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(statement)
    return str(told.value)


@pytest.mark.parametrize("table", TABLES)
def test_no_statement_changes_or_deletes_history(table: str) -> None:
    forbid_emptying()
    before = AuditEntry.objects.count(), PolicyRevision.objects.count()
    for statement in (f"UPDATE {table} SET reason = 'it was not me'", f"DELETE FROM {table}"):
        assert f"{table} rows are never changed or deleted" in refused(statement)
    assert (AuditEntry.objects.count(), PolicyRevision.objects.count()) == before
    assert not AuditEntry.objects.filter(reason="it was not me").exists()


def test_history_still_grows(alice: services.Actor) -> None:
    forbid_emptying()
    services.edit_object("tenant", "acme", {"weight": 2}, actor=alice)
    services.rollback(1, actor=alice)
    assert PolicyRevision.objects.count() == 3


def test_every_table_of_history_is_guarded_after_all_migrations() -> None:
    """A migration that rebuilds one of the tables on SQLite loses its triggers."""
    each = 2 * len(TABLES)
    assert len([name for name in FOUND if name.startswith(TABLES)]) == each


@pytest.mark.postgres
@pytest.mark.parametrize("table", TABLES)
def test_nobody_empties_history_at_once(table: str) -> None:
    forbid_emptying()
    assert "never changed or deleted" in refused(f"TRUNCATE {table} CASCADE")


@pytest.mark.postgres
@pytest.mark.parametrize("table", TABLES)
def test_switching_other_triggers_off_does_not_help(table: str) -> None:
    forbid_emptying()
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL session_replication_role = replica")
    assert "never changed or deleted" in refused(f"DELETE FROM {table}")


@pytest.mark.postgres
def test_a_role_of_its_own_for_the_application_lacks_the_right(alice: services.Actor) -> None:
    """The grants of docs/operations.md: such a role cannot take the triggers away either."""
    with connection.cursor() as cursor:
        cursor.execute("CREATE ROLE fairlane_app_test")
        cursor.execute("GRANT USAGE ON SCHEMA public TO fairlane_app_test")
        for grant in ("SELECT, INSERT, UPDATE, DELETE ON ALL TABLES", "USAGE ON ALL SEQUENCES"):
            cursor.execute(f"GRANT {grant} IN SCHEMA public TO fairlane_app_test")
        for table in TABLES:
            cursor.execute(f"REVOKE UPDATE, DELETE, TRUNCATE ON {table} FROM fairlane_app_test")
        cursor.execute("SET LOCAL ROLE fairlane_app_test")
    for statement in (
        "DELETE FROM tenants_auditentry",
        "UPDATE tenants_policyrevision SET author = 'x'",
        "TRUNCATE tenants_auditentry",
        "DROP TRIGGER fairlane_append_only ON tenants_auditentry",
        "ALTER TABLE tenants_auditentry DISABLE TRIGGER fairlane_append_only",
    ):
        with pytest.raises(Error), transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(statement)
    services.edit_object("tenant", "acme", {"weight": 2}, actor=alice)
    assert AuditEntry.objects.filter(field="weight", new=2).exists()
