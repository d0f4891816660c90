"""What is wrong with the database, or with the policy in it, in words, of an error that it caused.

An error that is not here is a fault of this program, and keeps its traceback.
"""

from __future__ import annotations

import logging
import time

import psycopg
from django.db import Error, InterfaceError, OperationalError, connection
from psycopg_pool import PoolTimeout

from tenants.core.document import FromNewer

AWAY = "The database is out of reach, or has no connection left."
FULL = "The database's disk is full."
READ_ONLY = "The database takes no changes: it is read-only."
NO_RIGHT = "The database refuses it: the role in DATABASE_URL, or of the file, lacks a right."
OLDER = "The database lacks what this release needs: run manage.py migrate."
BUSY = "The database is busy: something holds what this needs for too long."

ASK_S = 3

# By SQLSTATE, whole or its class (https://www.postgresql.org/docs/current/errcodes-appendix.html).
OF_STATE = {
    "08": AWAY,
    "57P": AWAY,
    "53300": AWAY,
    "53": "The database's server is short of room.",
    "53100": FULL,
    "25006": READ_ONLY,
    "42501": NO_RIGHT,
    "42P01": OLDER,
    "42703": OLDER,
    "55P03": BUSY,
    "57014": BUSY,
    "40": BUSY,
}
OF_SQLITE = {
    "is locked": BUSY,
    "is full": FULL,
    "readonly": NO_RIGHT,
    "unable to open": NO_RIGHT,
    "disk i/o": "The database's disk fails.",
    "no such table": OLDER,
    "no such column": OLDER,
}


def why(error: BaseException | None) -> str | None:
    """A sentence for who asked; None where it is no such error."""
    if isinstance(error, FromNewer):
        return str(error)
    if not isinstance(error, Error | psycopg.Error):
        return None
    state = _state(error)
    if state is not None:
        return OF_STATE.get(state) or OF_STATE.get(state[:3]) or OF_STATE.get(state[:2])
    said = str(error).lower()
    found = next((words for part, words in OF_SQLITE.items() if part in said), None)
    away = OperationalError, InterfaceError, psycopg.OperationalError, psycopg.InterfaceError
    return found or (AWAY if isinstance(error, away) else None)


def in_its_words(error: BaseException) -> str:
    """What the server says. A pool of connections only says that it got none, so a connection of
    its own is tried for the reason: a wrong password, no such database, nobody there."""
    if isinstance(error.__cause__, PoolTimeout):
        try:
            asked = connection.get_connection_params() | {"connect_timeout": ASK_S}
            psycopg.connect(**asked).close()
        except psycopg.OperationalError as refused:
            return " ".join(str(refused).split())
    return str(error).strip()


def _state(error: BaseException) -> str | None:
    """Django's errors carry psycopg's as their cause."""
    found = getattr(error, "sqlstate", None) or getattr(error.__cause__, "sqlstate", None)
    return str(found) if found else None


class Sparing(logging.Filter):
    """Of the lines that one call of a logger writes, one in `EVERY_S`: a pool of connections says
    several times a second that its server is away."""

    EVERY_S = 30.0

    def __init__(self) -> None:
        super().__init__()
        self._told: dict[tuple[str, int], float] = {}  # as many as there are such calls

    def filter(self, record: logging.LogRecord) -> bool:
        call, now = (record.pathname, record.lineno), time.monotonic()
        if now - self._told.get(call, -self.EVERY_S) < self.EVERY_S:
            return False
        self._told[call] = now
        return True
