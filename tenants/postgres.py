"""What PostgreSQL has and SQLite has not: sessions that are told of a change, and its telling.

1. NOTIFY is part of the transaction that changes the policy: who hears it finds the change there.
2. It may be lost, with the connection or with the server. Whoever listens polls as well, and looks
   once each time it is connected.
3. What listens or holds a lock is a session of its own, never one of the pool's, which would carry
   it on to others. It ends with its connection, also where the process or its machine died.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import psycopg
import structlog
from django.db import connection

CHANNEL = "fairlane_policy"
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.2, 5.0
DEAD_AFTER = "-c tcp_keepalives_idle=20 -c tcp_keepalives_interval=5 -c tcp_keepalives_count=4"
DJANGOS = ("cursor_factory", "context", "prepare_threshold")

log = structlog.get_logger(__name__)


def is_used() -> bool:
    return connection.vendor == "postgresql"


def notify(version: int) -> None:
    """Tell every gateway, once the transaction that this is called in commits."""
    if is_used():
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_notify(%s, %s)", [CHANNEL, str(version)])


def session() -> psycopg.Connection[Any]:
    """A connection of its own, for the caller to close.

    Raises:
        psycopg.OperationalError: the server is away.
    """
    return psycopg.connect(**_parameters(), autocommit=True)


def _parameters() -> dict[str, Any]:
    given: dict[str, Any] = connection.get_connection_params()
    mine = {name: value for name, value in given.items() if name not in DJANGOS}
    return {**mine, "options": f"{mine.get('options', '')} {DEAD_AFTER}".strip()}


class PolicyNotices:
    """Wakes whoever polls the policy's version. On SQLite nothing ever does."""

    def __init__(self) -> None:
        self.connected = False
        self._news = asyncio.Event()

    async def wait(self, seconds: float) -> None:
        """For news, and so long at most."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._news.wait()
        self._news.clear()

    async def listen(self) -> None:
        """Until it is cancelled; a connection that is lost is made again."""
        pause = FIRST_PAUSE_S
        while is_used():
            try:
                async for _ in self._heard():
                    pause = FIRST_PAUSE_S
                    self._news.set()
            except (psycopg.Error, OSError) as error:
                log.warning("policy_notices_lost", error=str(error), retry_s=pause)
            await asyncio.sleep(pause)
            pause = min(pause * 2, LONGEST_PAUSE_S)

    async def _heard(self) -> AsyncIterator[None]:
        """Once at the beginning, for what came before it, and then for each notice."""
        other = await psycopg.AsyncConnection.connect(**_parameters(), autocommit=True)
        try:
            await other.execute(f"LISTEN {CHANNEL}")
            self.connected = True
            yield
            async for _ in other.notifies():
                yield
        finally:
            self.connected = False
            await other.close()
