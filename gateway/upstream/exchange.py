"""One request's answer as it arrives: the connection feeds it, one task reads it.

1. It ends once: finished, failed, or given up. From then on it has no connection, and nothing it
   does can touch the next exchange on that socket.
2. Given up before the answer is complete (closed, or its reader cancelled), it closes the socket
   at once: that is how an engine learns to abort. Complete, the socket is already free again,
   even while the reader still has pieces to take.
3. It holds at most `HIGH_WATER` bytes and one read more; beyond that the socket is not read.
4. What arrived since the last look comes as one piece; a lone piece is never copied.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Protocol

import httpx

HIGH_WATER = 64 * 1024

Timeouts = Mapping[str, float | None]  # httpx's: connect, read, write, pool; seconds
RawHeaders = list[tuple[bytes, bytes]]


class Line(Protocol):
    """What an exchange asks of its connection."""

    loop: asyncio.AbstractEventLoop

    def expect(self) -> None:
        """The reader waits: start its timeout."""

    def heard(self) -> None:
        """The reader need not wait any more: lift its timeout."""

    def pause(self) -> None: ...
    def resume(self) -> None: ...
    def abort(self) -> None: ...


class Exchange:
    def __init__(self, line: Line, timeouts: Timeouts) -> None:
        self.status = 0  # 0: the head is not there yet
        self.headers: RawHeaders = []
        self.timeouts = timeouts
        self._line: Line | None = line
        self._parts: list[bytes] = []
        self._held = 0
        self._error: Exception | None = None
        self._reader: asyncio.Future[None] | None = None

    # --- what the reader calls -----------------------------------------------------------------

    async def head(self) -> None:
        """Wait for status and headers.

        Raises:
            httpx.TransportError: the exchange failed before they were there.
        """
        while not self.status:
            if self._error is not None:
                raise self._error
            await self._news()

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        while not self._parts:
            if self._error is not None:
                raise self._error
            if self._line is None:
                raise StopAsyncIteration
            await self._news()
        return self._take()

    @property
    def is_complete(self) -> bool:
        """All of the answer is here."""
        return self._line is None and self._error is None

    async def aclose(self) -> None:
        self.give_up()

    def give_up(self) -> None:
        self._parts.clear()
        line = self._line
        if line is not None:
            self.fail(httpx.StreamClosed())
            line.abort()
        elif self._error is not None:
            self._error = httpx.StreamClosed()  # what was raised holds its readers, and they this

    @property
    def is_awaited(self) -> bool:
        return self._reader is not None and not self._reader.done()

    # --- what the connection calls -------------------------------------------------------------

    def begin(self, status: int, headers: RawHeaders) -> None:
        self.status = status
        self.headers = headers
        self._tell()

    def feed(self, data: bytes) -> None:
        self._parts.append(data)
        self._held += len(data)
        if self._held > HIGH_WATER and self._line is not None:
            self._line.pause()
        self._tell()

    def finish(self) -> None:
        self._tell()
        self._line = None

    def fail(self, error: Exception) -> None:
        self._error = error
        self._tell()
        self._line = None

    # --- between the two -----------------------------------------------------------------------

    def _take(self) -> bytes:
        parts = self._parts
        if len(parts) == 1:
            piece = parts.pop()
        else:
            piece = b"".join(parts)
            parts.clear()
        if self._held > HIGH_WATER and self._line is not None:
            self._line.resume()
        self._held = 0
        return piece

    async def _news(self) -> None:
        line = self._line
        assert line is not None, "an exchange that has ended has no more news"
        assert self._reader is None, "an exchange has one reader"
        self._reader = line.loop.create_future()
        line.expect()
        try:
            await self._reader
        except asyncio.CancelledError:
            self.give_up()
            raise
        finally:
            self._reader = None

    def _tell(self) -> None:
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)
            if self._line is not None:
                self._line.heard()
