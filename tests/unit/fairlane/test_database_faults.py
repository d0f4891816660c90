"""What is said of a database that cannot be used, by the error that it caused."""

from __future__ import annotations

import logging
import socket
import sqlite3

import psycopg
import pytest
from django.db import OperationalError, ProgrammingError
from psycopg.errors import lookup
from psycopg_pool import PoolTimeout

from fairlane import database_faults as faults
from fairlane.database_faults import Sparing, why


def of(state: str) -> Exception:
    """As Django raises it."""
    error = OperationalError("in words")
    error.__cause__ = lookup(state)("in words")
    return error


@pytest.mark.parametrize(
    ("state", "said"),
    [
        ("53300", faults.AWAY),
        ("57P01", faults.AWAY),
        ("57P03", faults.AWAY),
        ("08006", faults.AWAY),
        ("53100", faults.FULL),
        ("25006", faults.READ_ONLY),
        ("42501", faults.NO_RIGHT),
        ("42P01", faults.OLDER),
        ("42703", faults.OLDER),
        ("55P03", faults.BUSY),
        ("57014", faults.BUSY),
        ("40P01", faults.BUSY),
    ],
)
def test_each_trouble_of_the_server_has_its_words(state: str, said: str) -> None:
    assert why(of(state)) == said
    assert why(lookup(state)("in words")) == said


def test_a_pool_that_got_no_connection_tells_why_the_server_gives_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with socket.socket() as nobody:  # bound, and does not listen
        nobody.bind(("127.0.0.1", 0))
        where = {"host": "127.0.0.1", "port": nobody.getsockname()[1], "dbname": "x", "user": "x"}
        monkeypatch.setattr(faults.connection, "get_connection_params", lambda: where)
        error = OperationalError("couldn't get a connection after 5.00 sec")
        error.__cause__ = PoolTimeout("couldn't get a connection after 5.00 sec")
        assert "Connection refused" in faults.in_its_words(error)
    assert faults.in_its_words(of("53100")) == "in words"


@pytest.mark.parametrize(
    ("message", "said"),
    [
        ("database is locked", faults.BUSY),
        ("database or disk is full", faults.FULL),
        ("attempt to write a readonly database", faults.NO_RIGHT),
        ("unable to open database file", faults.NO_RIGHT),
        ("no such table: tenants_tenant", faults.OLDER),
    ],
)
def test_so_has_each_of_sqlites(message: str, said: str) -> None:
    error = OperationalError(message)
    error.__cause__ = sqlite3.OperationalError(message)
    assert why(error) == said


def test_a_server_that_nobody_reaches_tells_no_state() -> None:
    assert why(PoolTimeout("couldn't get a connection after 5.00 sec")) == faults.AWAY
    assert why(psycopg.OperationalError("connection refused")) == faults.AWAY


@pytest.mark.parametrize("error", [of("42601"), of("22003"), ProgrammingError("x"), KeyError("x")])
def test_our_own_faults_are_none_of_it(error: Exception) -> None:
    assert why(error) is None


def test_of_what_one_call_logs_all_the_time_a_line_in_half_a_minute_is_kept() -> None:
    sparing = Sparing()

    def line(number: int) -> logging.LogRecord:
        return logging.LogRecord("x", logging.WARNING, "pool.py", number, "again", (), None)

    assert [sparing.filter(line(1)) for _ in range(3)] == [True, False, False]
    assert sparing.filter(line(2))
