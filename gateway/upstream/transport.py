"""The way to the engines: a transport on asyncio and httptools, called directly.

1. A request is sent a second time only when the connection had served before, died, and sent not
   one byte of an answer: it had been closed while idle. Then once, past every idle connection.
2. Whoever gets a response closes it; closing it before its end closes the socket.
3. It belongs to one event loop, holds no global state, and `aclose` leaves no socket open.
4. httpx's Request and Response cost more than all that is done here, so it has neither; of httpx
   it has the exceptions, URLs and names of timeouts.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterable
from typing import NamedTuple

import httpx

from gateway.upstream.addresses import Addresses
from gateway.upstream.exchange import Exchange, RawHeaders, Timeouts
from gateway.upstream.pool import Limits, Origin, Pool
from gateway.upstream.request import message

PORTS = {"http": 80, "https": 443}
URLS_KEPT = 1024


class Target(NamedTuple):
    """A URL as it is asked: reading one costs as much as sending a small request."""

    pool: Pool
    host: bytes
    path: bytes


class EngineTransport:
    """`tls` is made from the system's certificates when it is not given; `allowed` are networks
    that are refused otherwise (`addresses`).

    It raises httpx's own exceptions, and `timeouts` are httpx's own: `connect`, `pool`, `write`
    (the whole request), `read` (the whole head, then each wait for more of the body).
    """

    def __init__(
        self,
        limits: Limits | None = None,
        tls: ssl.SSLContext | None = None,
        allowed: Iterable[str] = (),
    ) -> None:
        self._addresses = Addresses(allowed)
        self._limits = limits or Limits()
        self._tls = tls
        self._pools: dict[Origin, Pool] = {}
        self._targets: dict[str, Target] = {}
        self._is_closed = False

    async def ask(
        self, method: str, url: str, headers: RawHeaders, body: bytes, timeouts: Timeouts
    ) -> Exchange:
        """The answer once its head is there. Host and framing headers are set here."""
        target = self._targets.get(url) or self._target(url)
        sent = message(method, target.path, target.host, headers, body)
        return await self._exchange(target.pool, method, sent, timeouts)

    async def aclose(self) -> None:
        self._is_closed = True
        for pool in self._pools.values():
            await pool.aclose()

    async def _exchange(
        self, pool: Pool, method: str, sent: list[bytes], timeouts: Timeouts
    ) -> Exchange:
        connection = await pool.acquire(timeouts)
        had_served = connection.exchanges > 0
        exchange = connection.start(method, sent, timeouts)
        try:
            await exchange.head()
        except (httpx.NetworkError, httpx.RemoteProtocolError):
            if not had_served or connection.has_answered:
                raise
        else:
            return exchange
        pool.drop_idle()  # what killed one has most likely killed all
        connection = await pool.acquire(timeouts)
        exchange = connection.start(method, sent, timeouts)
        await exchange.head()
        return exchange

    def _target(self, text: str) -> Target:
        try:
            url = httpx.URL(text)
        except httpx.InvalidURL as error:
            raise httpx.UnsupportedProtocol(f"cannot reach {text}: {error}") from None
        if len(self._targets) >= URLS_KEPT:
            self._targets.clear()
        target = self._targets[text] = Target(self._pool(url), url.netloc, url.raw_path)
        return target

    def _pool(self, url: httpx.URL) -> Pool:
        host = url.raw_host.decode("ascii")  # as it goes over the wire: `host` may be no IDN at all
        origin = Origin(url.scheme, host, url.port or PORTS.get(url.scheme, 0))
        pool = self._pools.get(origin)
        if pool is None:
            pool = self._pools[origin] = self._new_pool(origin)
        return pool

    def _new_pool(self, origin: Origin) -> Pool:
        if self._is_closed:
            raise httpx.ConnectError("the transport was closed")
        if origin.scheme not in PORTS or not origin.host:
            raise httpx.UnsupportedProtocol(f"cannot reach {origin.scheme}://{origin.host}")
        if origin.scheme == "https" and self._tls is None:
            self._tls = ssl.create_default_context()
        tls = self._tls if origin.scheme == "https" else None
        return Pool(origin, self._limits, tls, self._addresses)
