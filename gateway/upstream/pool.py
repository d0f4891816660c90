"""The connections to one origin.

1. A slot is held from before a connection is looked for until its exchange is over or its socket
   is gone, and given back once. A new connection is opened only when none is idle, so slots bound
   the open sockets too.
2. Slots are given in the order of asking.
3. The connection used last is used next; idle ones expire, and one that died is never handed out.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from functools import partial
from typing import NamedTuple

import httpx

from gateway.upstream.addresses import Addresses
from gateway.upstream.alarm import Alarm
from gateway.upstream.connection import Connection
from gateway.upstream.exchange import Timeouts


class Origin(NamedTuple):
    scheme: str
    host: str
    port: int


class Limits(NamedTuple):
    """Per origin. An engine under uvicorn closes what idles for 5 seconds; closing first avoids
    the race with it."""

    max_connections: int = 4096
    max_idle: int = 256
    idle_s: float = 4.0


class Slots:
    """As asyncio.Semaphore, which costs more than all else here."""

    def __init__(self, free: int) -> None:
        self._free = free
        self._waiting: deque[asyncio.Future[None]] = deque()

    def take(self) -> bool:
        """One at once, where nobody else waits for it."""
        if self._free and not self._waiting:
            self._free -= 1
            return True
        return False

    async def wait(self) -> None:
        mine: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(mine)
        try:
            await mine
        except asyncio.CancelledError:
            if mine.done() and not mine.cancelled():  # it was given in the same moment
                self.release()
            raise

    def release(self) -> None:
        while self._waiting:
            first = self._waiting.popleft()
            if not first.done():  # else its task has left
                first.set_result(None)
                return
        self._free += 1


class Pool:
    def __init__(
        self,
        origin: Origin,
        limits: Limits,
        tls: ssl.SSLContext | None,
        addresses: Addresses,
    ) -> None:
        self._addresses = addresses
        self._origin = origin
        self._limits = limits
        self._tls = tls
        self._loop = asyncio.get_running_loop()
        self._slots = Slots(limits.max_connections)
        self._busy: set[Connection] = set()
        self._idle: dict[Connection, None] = {}  # the one freed last is last
        self._expiry = Alarm(self._loop, self._expire)
        self._is_closed = False
        self._emptied = asyncio.Event()

    async def acquire(self, timeouts: Timeouts) -> Connection:
        """A connection for one exchange.

        Raises:
            httpx.PoolTimeout: all are busy and stay so. httpx.ConnectTimeout, httpx.ConnectError.
        """
        await self._take_slot(timeouts.get("pool"))
        try:
            connection = self._reuse() or await self._open(timeouts.get("connect"))
        except BaseException:
            self._slots.release()
            raise
        self._busy.add(connection)
        return connection

    def drop_idle(self) -> None:
        idle, self._idle = self._idle, {}
        for connection in idle:
            connection.abort()

    async def aclose(self) -> None:
        """Close every connection; exchanges under way fail."""
        self._is_closed = True
        self._expiry.stop()
        for connection in [*self._busy, *self._idle]:
            connection.fail(httpx.ReadError("the transport was closed"))
        if self._busy or self._idle:
            await self._emptied.wait()

    # --- connection.Owner ----------------------------------------------------------------------

    def freed(self, connection: Connection) -> None:
        self._busy.remove(connection)
        self._slots.release()
        if len(self._idle) >= self._limits.max_idle:
            connection.abort()
            return
        connection.idle_since = self._loop.time()
        if not self._idle:
            self._expiry.set(connection.idle_since + self._limits.idle_s)
        self._idle[connection] = None

    def lost(self, connection: Connection) -> None:
        if connection in self._busy:
            self._busy.remove(connection)
            self._slots.release()
        self._idle.pop(connection, None)
        if self._is_closed and not self._busy and not self._idle:
            self._emptied.set()

    # --- inside --------------------------------------------------------------------------------

    async def _take_slot(self, timeout_s: float | None) -> None:
        if self._slots.take():
            return
        try:
            async with asyncio.timeout(timeout_s):
                await self._slots.wait()
        except TimeoutError as error:
            raise httpx.PoolTimeout("every connection is busy") from error

    def _reuse(self) -> Connection | None:
        while self._idle:
            connection, _ = self._idle.popitem()
            if connection.is_usable:
                return connection
        return None

    async def _open(self, timeout_s: float | None) -> Connection:
        if self._is_closed:
            raise httpx.ConnectError("the transport was closed")
        _, host, port = self._origin
        try:
            async with asyncio.timeout(timeout_s):
                connection = await self._connect(host, port)
        except TimeoutError as error:
            raise httpx.ConnectTimeout(f"no connection to {host}:{port} in time") from error
        except (OSError, UnicodeError) as error:
            said = getattr(error, "strerror", None) or error
            raise httpx.ConnectError(f"no connection to {host}:{port}: {said}") from error
        if self._is_closed:
            connection.abort()
            raise httpx.ConnectError("the transport was closed")
        return connection

    async def _connect(self, host: str, port: int) -> Connection:
        """To the first of the name's addresses that takes it."""
        factory = partial(Connection, self._loop, self)
        name = host if self._tls is not None else None
        failed: OSError | None = None
        for address in await self._addresses.of(host, port):
            try:
                _, connection = await self._loop.create_connection(
                    factory, address, port, ssl=self._tls, server_hostname=name
                )
            except OSError as error:
                failed = error
            else:
                return connection
        assert failed is not None
        raise failed

    def _expire(self) -> None:
        """Idle connections lie in the order in which they were freed."""
        overdue = self._loop.time() - self._limits.idle_s
        while self._idle:
            oldest = next(iter(self._idle))
            if oldest.idle_since > overdue:
                self._expiry.set(oldest.idle_since + self._limits.idle_s)
                return
            del self._idle[oldest]
            oldest.abort()
