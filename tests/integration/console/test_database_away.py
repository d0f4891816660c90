"""What a page and a call of the API say while the database cannot be used."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest
from django.apps import apps
from django.db import InternalError, OperationalError, connection
from django.db.models.signals import pre_migrate
from django.test import Client
from psycopg.errors import lookup

from fairlane import database_faults as faults

pytestmark = [pytest.mark.django_db, pytest.mark.store]


@pytest.fixture
def broken(client: Client) -> Iterator[Any]:
    """Every statement fails as told."""
    client.raise_request_exception = False
    client.cookies["sessionid"] = "s" * 32
    told: list[tuple[type[Exception], str]] = []

    def fail(execute: Any, sql: str, *more: Any) -> Any:
        if told:
            kind, state = told[0]
            raise kind("of the server") from lookup(state)("of the server")
        return execute(sql, *more)

    with connection.execute_wrapper(fail):
        yield lambda kind, state: told.append((kind, state))


def test_a_page_says_so_and_leads_to_another_try(client: Client, broken: Any) -> None:
    broken(OperationalError, "53300")
    answer = client.get("/login/?next=/pools/")
    assert answer.status_code == 503
    assert answer["Retry-After"] == "5"
    assert "no-store" in answer["Cache-Control"]
    assert faults.AWAY in answer.content.decode()
    assert 'href="/login/?next=/pools/"' in answer.content.decode()


def test_it_leads_nowhere_else(client: Client, broken: Any) -> None:
    broken(OperationalError, "53300")
    answer = client.get("//evil.example/")
    assert 'href="//evil' not in answer.content.decode()


def test_the_api_says_so_in_its_form(client: Client, broken: Any) -> None:
    broken(InternalError, "25006")
    answer = client.get("/api/v1/tenants/", headers={"authorization": "Token flt_a_b"})
    assert answer.status_code == 503
    assert answer.json() == {"detail": faults.READ_ONLY, "errors": []}


def test_the_log_has_one_line_of_it_and_no_traceback(
    client: Client, broken: Any, caplog: pytest.LogCaptureFixture
) -> None:
    broken(OperationalError, "53100")
    client.get("/login/")
    (line,) = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert (line.name, line.exc_info) == ("fairlane.console", None)
    assert faults.FULL in line.getMessage()


def test_a_fault_of_our_own_stays_one(
    client: Client, broken: Any, caplog: pytest.LogCaptureFixture
) -> None:
    broken(OperationalError, "42601")
    answer = client.get("/login/")
    assert answer.status_code == 500
    assert [r.exc_info is not None for r in caplog.records if r.name == "django.request"] == [True]


@pytest.mark.postgres
def test_a_migration_waits_for_its_tables_where_all_else_gives_up() -> None:
    def patience() -> str:
        with connection.cursor() as cursor:
            cursor.execute("SHOW lock_timeout")
            return str(cursor.fetchone()[0])

    assert patience() == "10s"
    pre_migrate.send(apps.get_app_config("fairlane"), using="default")
    assert patience() == "0"
