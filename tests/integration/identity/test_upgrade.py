"""A database of the version that kept tokens in clear text."""

from __future__ import annotations

import importlib
from types import SimpleNamespace
from typing import Any

import pytest
from django.apps import apps
from django.db import connection
from django.test import Client

from tenants.models import AccessToken

pytestmark = [pytest.mark.django_db, pytest.mark.store]
migration: Any = importlib.import_module("tenants.migrations.0004_access_tokens")


def test_tokens_work_on_and_their_text_goes(people: dict[str, Any]) -> None:
    old = "9944b09199c62bcf9418ad846dd0e4bbdfc6ee4b"
    AccessToken.objects.filter(user=people["admin"]).delete()
    with connection.cursor() as cursor:
        cursor.execute(
            "CREATE TABLE authtoken_token (key varchar(40) PRIMARY KEY, user_id integer)"
        )
        cursor.execute("INSERT INTO authtoken_token VALUES (%s, %s)", [old, people["admin"].pk])
    with connection.cursor() as cursor:  # SQLite's schema editor wants no transaction round it
        editor = SimpleNamespace(connection=connection, execute=cursor.execute)
        migration.take_over(apps, editor)
        migration.forget_old(apps, editor)
    client = Client(headers={"authorization": f"Token {old}"})
    assert client.get("/api/v1/tenants/").status_code == 200
    assert "authtoken_token" not in connection.introspection.table_names()
    migration.take_over(apps, editor)  # a fresh database has no such table
