"""uvicorn's HTTP protocol with a bound on what comes before anybody knows who is asking, and with
one write for the head of an answer and what comes first of its body.

uvicorn's own takes a head of any size, for as long as it takes to arrive, and the parser copies a
header value that grows with every read: one unfinished head of 150 MB stopped the loop for 47 s.
And it writes a head by itself: a system call more for each answer, and a packet that wakes its
reader for nothing.

And it tells of a lost connection only whoever waits for a message of its request; here a future of
the connection is done then (`gateway.exchange.LOST`).
"""

from __future__ import annotations

import asyncio
from typing import Any, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from gateway.exchange import LOST

HEAD_BYTES = 64 * 1024
HEAD_SECONDS = 30.0


class BoundedHttp(HttpToolsProtocol):
    """Closes a connection whose head is too large or too slow; so too for trailers and for all
    else that is framing and never becomes a body."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._fields_bytes = 0  # of this message's headers and trailers
        self._unused_bytes = 0  # read since anything last came of it
        self._in_body = False
        self._patience: asyncio.TimerHandle | None = None
        self._lost: asyncio.Future[None] = self.loop.create_future()
        self._extensions: dict[str, dict[object, object]] = {LOST: {"future": self._lost}}

    def connection_made(self, transport: Any) -> None:
        self._out = HeadHolder(transport, self.loop)
        super().connection_made(cast(asyncio.Transport, self._out))
        self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._heard()
        self._lost.set_result(None)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._unused_bytes += len(data)
        super().data_received(data)
        if self._unused_bytes > HEAD_BYTES:
            self._refuse()
        elif self._unused_bytes and not self._in_body and self._patience is None:
            self._expect_head()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._fields_bytes = 0
        self.scope["extensions"] = self._extensions

    def on_header(self, name: bytes, value: bytes) -> None:
        self._fields_bytes += len(name) + len(value)
        if self._fields_bytes > HEAD_BYTES:
            raise ValueError("the head of the request is too large")  # answered as any bad request
        if not self._in_body:  # a trailer is no header: a proxy in front has not looked at it
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._heard()
        self._in_body = True
        self._out.hold_next()
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._heard()
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._heard()
        self._in_body = False
        super().on_message_complete()

    def _expect_head(self) -> None:
        self._patience = self.loop.call_later(HEAD_SECONDS, self._lose_patience)

    def _heard(self) -> None:
        self._unused_bytes = 0
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None

    def _lose_patience(self) -> None:
        """Without a word: the caller may be about to send what a 400 would then seem to answer.
        A stray line end after a request must not cost it the answer that is on its way."""
        if self.cycle is not None and not self.cycle.response_complete:
            self._expect_head()
        else:
            self.transport.close()

    def _refuse(self) -> None:
        self._heard()
        if not self.transport.is_closing():
            self.send_400_response("The head of the request is too large.")


class HeadHolder:
    """A transport that holds an answer's head back until its body begins; at most until the loop
    has done what it has at hand. All else goes to the transport below as it comes."""

    def __init__(self, below: Any, loop: asyncio.AbstractEventLoop) -> None:
        self._below = below
        self._loop = loop
        self._is_head_next = False
        self._head = b""
        self.is_closing = below.is_closing  # asked for with every answer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._below, name)

    def hold_next(self) -> None:
        self._is_head_next = True

    def write(self, data: bytes) -> None:
        if self._is_head_next:
            self._is_head_next = False
            self._head = data
            self._loop.call_soon(self._flush)
        elif self._head:
            head, self._head = self._head, b""
            self._below.writelines((head, data))
        else:
            self._below.write(data)

    def close(self) -> None:
        self._flush()
        self._below.close()

    def _flush(self) -> None:
        if self._head:
            head, self._head = self._head, b""
            self._below.write(head)
