"""One at a time over all processes and machines: a background job, or the beat that orders them.

1. On PostgreSQL an advisory lock, in a session of its own; on SQLite, which is one machine, a lock
   on a file beside the database.
2. Nobody waits: who does not get it leaves the work to the one that has it.
3. It ends with its holder, whatever becomes of that. So a job that it guards must be one that may
   run twice all the same: a holder may be cut off from the database and work on.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec, Protocol

import psycopg
from django.db import connection

from tenants import postgres

TRY = "SELECT pg_try_advisory_lock(hashtextextended(%s, 0))"
P = ParamSpec("P")


class Held(Protocol):
    def lasts(self) -> bool:
        """False once it was lost, with the connection to the database."""

    def release(self) -> None: ...


class _Session:
    def __init__(self, session: psycopg.Connection[Any]) -> None:
        self._session = session

    def lasts(self) -> bool:
        try:
            self._session.execute("SELECT 1")
        except psycopg.Error:
            return False
        return True

    def release(self) -> None:
        self._session.close()


class _File:
    def __init__(self, fd: int) -> None:
        self._fd = fd

    def lasts(self) -> bool:
        return True

    def release(self) -> None:
        os.close(self._fd)


def hold(name: str) -> Held | None:
    """None where somebody has it.

    Raises:
        psycopg.OperationalError: the database is away.
    """
    return _hold_session(name) if postgres.is_used() else _hold_file(name)


def _hold_session(name: str) -> Held | None:
    session = postgres.session()
    try:
        found = session.execute(TRY, [f"fairlane {name}"]).fetchone()
        if found is not None and found[0]:
            return _Session(session)
    except BaseException:
        session.close()
        raise
    session.close()
    return None


def _hold_file(name: str) -> Held | None:
    folder = Path(f"{connection.settings_dict['NAME']}.locks")
    folder.mkdir(exist_ok=True)
    fd = os.open(folder / name, os.O_CREAT | os.O_RDWR, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        return None
    return _File(fd)


@contextmanager
def only_one(name: str) -> Iterator[bool]:
    """True for the one that has it until the end of the block."""
    held = hold(name)
    try:
        yield held is not None
    finally:
        if held is not None:
            held.release()


def alone(job: Callable[P, int]) -> Callable[P, int]:
    """For a job that another process may be at: then it is left to that one, and comes to 0."""

    @wraps(job)
    def run(*args: P.args, **kwargs: P.kwargs) -> int:
        with only_one(job.__name__) as mine:
            return job(*args, **kwargs) if mine else 0

    return run
