"""Tests that commit must empty every table afterwards; history's triggers would refuse."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from django.db import connection

history: Any = import_module("tenants.migrations.0003_history_is_append_only")


def triggers() -> set[str]:
    """Names of the triggers that stand on history's tables."""
    if connection.vendor == "postgresql":
        asked = "SELECT tgrelid::regclass || '.' || tgname FROM pg_trigger WHERE NOT tgisinternal"
    else:
        asked = "SELECT tbl_name || '.' || name FROM sqlite_master WHERE type = 'trigger'"
    with connection.cursor() as cursor:
        cursor.execute(asked)
        return {row[0] for row in cursor.fetchall()}


FOUND: set[str] = set()  # what the migrations left, before anything of it was taken away


def allow_emptying() -> None:
    """Without what refuses Django's flush: TRUNCATE on PostgreSQL, DELETE on SQLite."""
    FOUND.update(triggers())
    with connection.cursor() as cursor:
        for table in history.TABLES:
            if connection.vendor == "postgresql":
                cursor.execute(f"DROP TRIGGER fairlane_no_truncate ON {table}")
            else:
                cursor.execute(f"DROP TRIGGER {table}_no_delete")


class Editor:
    """What a migration's function asks of Django's schema editor, which on SQLite refuses to be
    used within a transaction."""

    connection = connection

    def execute(self, statement: str, params: None = None) -> None:
        with connection.cursor() as cursor:
            cursor.execute(statement, params)


def forbid_emptying() -> None:
    """All of it again; inside a test's transaction, which takes it back."""
    editor = Editor()
    on = " ON {}" if connection.vendor == "postgresql" else ""
    connection.check_constraints()  # PostgreSQL alters no table that waits for a check
    for table, _, name in (found.partition(".") for found in triggers()):
        if table in history.TABLES:
            editor.execute(f"DROP TRIGGER {name}{on.format(table)}")
    history.guard(None, editor)
