"""What the gateway sends its requests with.

1. One timer a request, none a piece, and no task: see `Alarm`.
2. Every limit that is passed raises an httpx.TimeoutException. Whoever got an answer closes it,
   whatever happened; closed before its end, the engine's socket closes at once.
3. `httpx.AsyncClient.send` is not used: it costs more than all of this together
   (tests/bench/upstream.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from math import inf
from typing import Protocol

import httpx

from gateway.upstream.alarm import Alarm
from gateway.upstream.exchange import RawHeaders, Timeouts


class Answer(Protocol):
    """An engine's, from the moment that its head is there."""

    @property
    def status(self) -> int: ...

    @property
    def headers(self) -> RawHeaders: ...

    @property
    def is_complete(self) -> bool:
        """All of it is here, and reading it waits for nothing."""

    def __aiter__(self) -> AsyncIterator[bytes]: ...

    async def aclose(self) -> None: ...


class Transport(Protocol):
    """`gateway.upstream.transport`; of engines that are made up, in tests."""

    async def ask(
        self, method: str, url: str, headers: RawHeaders, body: bytes, timeouts: Timeouts
    ) -> Answer: ...

    async def aclose(self) -> None: ...


class EngineClient:
    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def send(
        self,
        method: str,
        url: str,
        headers: RawHeaders,
        body: bytes,
        *,
        connect_s: float,
        first_byte_s: float,
    ) -> Answer:
        """Send, and wait for the answer's head; its body is for `iterate`, then close it.

        `first_byte_s` runs from the moment the request is sent. Host and framing headers are set
        here; other hop-by-hop headers are the caller's business.

        Raises:
            httpx.TransportError: ConnectError, ConnectTimeout, ReadTimeout, RemoteProtocolError, …
        """
        timeouts: dict[str, float | None] = {
            "connect": connect_s,
            "pool": connect_s,
            "write": first_byte_s,
            "read": first_byte_s,
        }
        answer = await self._transport.ask(method, url, headers, body, timeouts)
        timeouts["read"] = None  # from here on `iterate` keeps time; transports look at each read
        return answer

    def iterate(
        self,
        answer: Answer,
        idle_s: float,
        deadline: float = inf,
        first_s: float | None = None,
    ) -> AsyncIterator[bytes]:
        """The body as it arrives, not decoded.

        `idle_s` is the longest wait for a piece, `first_s` (else `idle_s`) for the first one, and
        `deadline`, on the loop's clock (time.monotonic), ends it all.

        Raises:
            httpx.ReadTimeout: one of the three passed.
            httpx.TransportError: the engine broke off.
        """
        if answer.is_complete:
            return aiter(answer)  # nothing to wait for: most answers that do not stream
        return _Pieces(aiter(answer), idle_s, deadline, first_s)

    async def aclose(self) -> None:
        await self._transport.aclose()


class _Pieces:
    """Cancels its own reader when a limit passes, the way asyncio.timeout does; it can ring only
    while the reader waits for the transport, never in the reader's own code."""

    def __init__(
        self, stream: AsyncIterator[bytes], idle_s: float, deadline: float, first_s: float | None
    ) -> None:
        self._next: Callable[[], Awaitable[bytes]] = stream.__anext__
        self._idle_s = idle_s
        self._patience = idle_s if first_s is None else first_s
        self._deadline = deadline
        self._loop = asyncio.get_running_loop()
        self._alarm = Alarm(self._loop, self._ring)
        self._reader: asyncio.Task[object] | None = None
        self._rang = False

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        reader = self._reader = asyncio.current_task()
        assert reader is not None
        cancels = reader.cancelling()
        self._start()
        try:
            piece = await self._next()
        except asyncio.CancelledError:
            self._alarm.stop()
            if self._rang and reader.uncancel() <= cancels:
                raise self._too_late() from None
            raise
        except BaseException:
            self._alarm.stop()
            raise
        self._alarm.lift()
        self._patience = self._idle_s
        return piece

    def _start(self) -> None:
        now = self._loop.time()
        if now >= self._deadline:
            self._alarm.stop()
            raise self._too_late()
        self._alarm.set(min(now + self._patience, self._deadline))

    def _ring(self) -> None:
        self._rang = True
        assert self._reader is not None
        self._reader.cancel()

    def _too_late(self) -> httpx.ReadTimeout:
        if self._loop.time() >= self._deadline:
            return httpx.ReadTimeout("the answer was not complete in time")
        return httpx.ReadTimeout(f"nothing arrived for {self._patience:.3g} s")
