"""Where a trial's product keeps its records: a SQLite file, or a database of its own on a real
PostgreSQL with `FAIRLANE_TEST_STORE=postgres`."""

from __future__ import annotations

import os
import secrets
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import psycopg
from psycopg.rows import dict_row

from tests.acceptance.gateway.rig import select
from tests.env import start_postgres


def new_database() -> str:
    """A DATABASE_URL; empty for the SQLite file in the data folder."""
    if os.environ.get("FAIRLANE_TEST_STORE") != "postgres":
        return ""
    server, name = _server(), f"trial_{secrets.token_hex(4)}"
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    head, question, tail = server.partition("?")
    return f"{head.rpartition('/')[0]}/{name}{question}{tail}"


@cache
def _server() -> str:
    """pytest's own, or one that ends with this process. A socket's path must be short."""
    given = os.environ.get("DATABASE_URL", "")
    if given.startswith("postgres"):
        return given
    return start_postgres(Path(tempfile.mkdtemp(prefix="fl-trial-")) / "postgres", durable=True)


def rows(folder: Path, database: str, query: str) -> list[dict[str, Any]]:
    if not database:
        return select(folder, query)
    with psycopg.connect(database, row_factory=dict_row) as connection:
        return connection.execute(query.encode()).fetchall()
