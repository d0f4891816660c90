"""What PostgreSQL has and SQLite has not: sessions that are told of a change, its telling, and a
server that may say nothing for ever.

1. NOTIFY is part of the transaction that changes the policy: who hears it finds the change there.
2. It may be lost, with the connection or with the server. Whoever listens polls as well, and looks
   once each time it is connected.
3. What listens or holds a lock is a session of its own, never one of the pool's, which would carry
   it on to others. It ends with its connection, also where the process or its machine died.
4. A server that took a question and then says nothing is gone, though its connection stays up: it
   hangs, or a proxy between has lost the question. TCP notices neither, and psycopg would wait for
   good, and with it the policy, the ledger, or the beat.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from math import inf
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import psycopg
import structlog
from django.db import connection

if TYPE_CHECKING:
    from psycopg.abc import PQGen

T = TypeVar("T")

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


class Session(psycopg.Connection[Any]):
    """Every connection but the one that listens. A command waits for as long as it must; who runs
    for good says in `patience_s` for how many seconds the server may be silent."""

    patience_s: ClassVar[float] = inf

    def wait(self, gen: PQGen[T], *more: Any, **named: Any) -> T:
        return super().wait(self._answered(gen), *more, **named)

    def _answered(self, asked: PQGen[T]) -> PQGen[T]:
        """psycopg looks ten times a second whether something is `ready`; 0 is nothing."""
        heard = time.monotonic()
        try:
            wanted = next(asked)
            while True:
                ready = yield wanted
                if ready:
                    heard = time.monotonic()
                elif time.monotonic() - heard > self.patience_s:
                    self.close()
                    raise psycopg.OperationalError(
                        f"the server has said nothing for {self.patience_s:g} s"
                    )
                wanted = asked.send(ready)
        except StopIteration as done:
            answer: T = done.value
            return answer


def session() -> Session:
    """A connection of its own, for the caller to close.

    Raises:
        psycopg.OperationalError: the server is away.
    """
    return Session.connect(**_parameters(), autocommit=True)


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
