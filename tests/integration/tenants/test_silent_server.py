"""A PostgreSQL that took a question and says nothing more, while its connection stays up: it hangs,
or a proxy between has lost the question."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Generator, Iterator
from math import inf
from pathlib import Path

import psycopg
import pytest
from psycopg_pool import ConnectionPool

from fairlane.environment import pool
from tenants import postgres
from tenants.postgres import Session
from tests.env import start_postgres


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """Its address. The folder's name is short: a socket's path has room for a hundred letters."""
    folder = Path(tempfile.mkdtemp(prefix="fl-silent-"))
    yield start_postgres(folder / "postgres")
    shutil.rmtree(folder, ignore_errors=True)


def test_it_is_left_and_another_connection_is_made(
    server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ConnectionPool(server, open=True, **pool(2)) as connections:
        with connections.connection() as first:
            first.execute("SELECT 1")
            monkeypatch.setattr(Session, "patience_s", 0.3)
            with pytest.raises(psycopg.OperationalError, match=r"has said nothing for 0\.3 s"):
                first.execute("SELECT pg_sleep(1000)")
            assert first.closed
        monkeypatch.setattr(Session, "patience_s", 60.0)
        with connections.connection() as second:
            assert second.execute("SELECT 1").fetchone() == (1,)


def test_a_lock_that_it_holds_is_not_waited_for(
    server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres, "_parameters", lambda: {"conninfo": server})
    with postgres.session() as session:
        monkeypatch.setattr(Session, "patience_s", 0.3)
        with pytest.raises(psycopg.OperationalError, match="has said nothing"):
            session.execute("SELECT pg_sleep(1000)")


class Offline(Session):
    """Its `wait` is not called: a test says itself when something came."""

    patience_s = 10.0

    def __init__(self) -> None:
        self.left = False

    def close(self) -> None:
        self.left = True

    def __del__(self, *_: object) -> None:
        """Nothing is open."""


def question() -> Generator[int, int, str]:
    """Of two parts, as psycopg asks."""
    while not (yield 1):
        pass
    while not (yield 1):
        pass
    return "answer"


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [0.0]
    monkeypatch.setattr(postgres.time, "monotonic", lambda: now[0])
    return now


def test_one_that_goes_on_answering_may_take_as_long_as_it_likes(clock: list[float]) -> None:
    session = Offline()
    asked = session._answered(question())
    next(asked)
    clock[0] = 9.0
    asked.send(0)
    asked.send(1)
    clock[0] = 18.0
    asked.send(0)
    with pytest.raises(StopIteration) as done:
        asked.send(1)
    assert done.value.value == "answer"
    assert not session.left


def test_a_command_waits_for_good(clock: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nobody set another patience, as a test that served the product here may have."""
    monkeypatch.setattr(Offline, "patience_s", inf)
    session = Offline()
    asked = session._answered(question())
    next(asked)
    clock[0] = 1e9
    asked.send(0)
    assert not session.left
