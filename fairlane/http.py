"""uvicorn's HTTP protocol with a bound on what comes before anybody knows who is asking, and with
one write for the head of an answer and what comes first of its body, or all of it.

uvicorn's own takes a head of any size, for as long as it takes to arrive, and the parser copies a
header value that grows with every read: one unfinished head of 150 MB stopped the loop for 47 s.
And it writes a head by itself: a system call more for each answer, and a packet that wakes its
reader for nothing.

And it drops the body of a request that would like another protocol, as Java's client would with
each call (`Upgrade: h2c`). There is none here, so the wish is passed over (RFC 9110, 7.8).

And it tells of a lost connection only whoever waits for a message of its request; here a future of
the connection is done then. Both are extensions of ASGI (`gateway.exchange.LOST`, `WHOLE`).
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any, cast

import httptools
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from gateway.exchange import LOST, WHOLE
from gateway.wire.headers import Headers

HEAD_BYTES = 64 * 1024
HEAD_SECONDS = 30.0
HOSTS = "A request names its host once, in its Host header."  # RFC 9112, 3.2


class BoundedHttp(HttpToolsProtocol):
    """Closes a connection whose head is too large or too slow; so too for trailers and for all
    else that is framing and never becomes a body."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._unused_bytes = 0  # read since anything last came of it
        self._in_body = False
        self._is_wish = False  # the head just read asks for another protocol
        self._fault = ""  # of the request, where more can be said than that it has one
        self._patience: asyncio.TimerHandle | None = None
        self._lost: asyncio.Future[None] = self.loop.create_future()
        self._extensions: dict[str, dict[object, object]] = {
            LOST: {"future": self._lost},
            WHOLE: {"send": self._send_whole},
        }

    def connection_made(self, transport: Any) -> None:
        self._out = HeadHolder(transport, self.loop)
        super().connection_made(cast(asyncio.Transport, self._out))
        self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._heard()
        self._lost.set_result(None)
        self._extensions.clear()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._unused_bytes += len(data)
        super().data_received(data)
        if self._is_wish:
            self._pass_over_wish(data)
        if self._unused_bytes > HEAD_BYTES:
            self._refuse()
        elif self._unused_bytes and not self._in_body and self._patience is None:
            self._expect_head()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.scope["extensions"] = self._extensions

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._in_body:  # a trailer is no header: a proxy in front has not looked at it
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._heard()
        self._is_wish = self.parser.should_upgrade() and self.parser.get_method() != b"CONNECT"
        if self._is_wish:
            return  # the parser will not read on: see `_pass_over_wish`
        size = hosts = 0
        for name, value in self.headers:
            size += len(name) + len(value)
            hosts += name == b"host"
        if size > HEAD_BYTES:  # that came in one read; else `data_received` has seen it
            raise ValueError("the head of the request is too large")  # answered as any bad request
        if hosts > 1 or (not hosts and self.parser.get_http_version() != "1.0"):
            self._fault = HOSTS
            raise ValueError(HOSTS)
        self._in_body = True
        self._out.hold_next()
        super().on_headers_complete()
        if self.parser.get_http_version() == "1.0":
            self.cycle.chunked_encoding = False
            self.cycle.expected_content_length = Unbounded()

    def on_body(self, body: bytes) -> None:
        self._heard()
        super().on_body(body)

    def on_message_complete(self) -> None:
        if self._is_wish:
            return
        self._heard()
        self._in_body = False
        super().on_message_complete()
        if not self.pipeline:
            # uvicorn stops reading at 64 KiB of a body, and reads on when somebody asks for more.
            # The gateway, which has all of it, does not: a hang-up would never be seen.
            self.flow.resume_reading()

    def _should_upgrade_to_ws(self) -> bool:
        return False

    def _unsupported_upgrade_warning(self) -> None:
        """Called while the error is handled with which a parser stopped; it says where."""
        stopped = sys.exc_info()[1]
        assert stopped is not None
        self._head_end = int(stopped.args[0])

    def _pass_over_wish(self, data: bytes) -> None:
        """The same request without it, and what has come after its head, to a parser of its own."""
        method, version = self.parser.get_method(), self.parser.get_http_version().encode()
        lines = [b"%b %b HTTP/%b" % (method, self.url, version)]
        lines += [b"%b: %b" % header for header in self.headers if header[0] != b"upgrade"]
        self._is_wish = False
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn's own
        self.data_received(b"\r\n".join([*lines, b"", b""]) + data[self._head_end :])

    def send_400_response(self, msg: str) -> None:
        super().send_400_response(self._fault or msg)

    def _send_whole(self, head: Headers, body: bytes) -> bool:
        """A complete answer of status 200. Its head is written as it is: it must be sound, say how
        long the body is, and nothing of the connection. False where anything is in the way, or
        no body may follow: then nothing was sent."""
        cycle = self.cycle
        if self.pipeline or self.flow.write_paused or cycle.disconnected or cycle.response_started:
            return False
        if cycle.scope["method"] == "HEAD":
            return False
        lines = [b"%b: %b\r\n" % each for each in (*self.server_state.default_headers, *head)]
        if not cycle.keep_alive:
            lines.append(b"connection: close\r\n")
        self._out.write_whole(b"".join((STATUS_LINE[200], *lines, b"\r\n", body)))
        cycle.response_started = cycle.response_complete = True
        cycle.message_event.set()
        if not cycle.keep_alive:
            self.transport.close()
        cycle.on_response()
        return True

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


class Unbounded(int):
    """The length of a body that ends with its connection, as uvicorn looks at lengths: HTTP/1.0
    knows no chunks (RFC 9112, 6.1)."""

    def __lt__(self, sent: int) -> bool:
        return False

    def __sub__(self, sent: int) -> Unbounded:
        return self

    def __ne__(self, left: object) -> bool:
        return False


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

    def write_whole(self, data: bytes) -> None:
        """An answer with its head and all; after what is held, a `100 Continue`."""
        self._is_head_next = False
        self._flush()
        self._below.write(data)

    def close(self) -> None:
        self._flush()
        self._below.close()

    def _flush(self) -> None:
        if self._head:
            head, self._head = self._head, b""
            self._below.write(head)
