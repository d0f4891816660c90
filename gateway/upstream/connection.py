"""One socket to an engine and the parser behind it: one exchange at a time.

1. It goes back to its pool only clean: answer complete, request wholly sent, both sides willing,
   and not a byte beyond the answer. In every other case it is closed.
2. What an idle connection hears (data or the end) closes it. An engine owes us nothing unasked.
3. httptools parses; what it refuses is a RemoteProtocolError. A head past `HEAD_LIMIT` bytes,
   interim (1xx) heads included, is one too.
4. A body without a length ends with the connection; one with a length that ends early has failed.
   (RFC 9112, section 6.3)
"""

from __future__ import annotations

import asyncio
from typing import Protocol, cast

import httptools
import httpx

from gateway.upstream.alarm import Alarm
from gateway.upstream.exchange import Exchange, RawHeaders, Timeouts

HEAD_LIMIT = 64 * 1024


class Owner(Protocol):
    def freed(self, connection: Connection) -> None:
        """The exchange is over and the connection may serve another."""

    def lost(self, connection: Connection) -> None:
        """The socket is gone."""


class Connection(asyncio.Protocol):
    def __init__(self, loop: asyncio.AbstractEventLoop, owner: Owner) -> None:
        self.loop = loop
        self.exchanges = 0  # begun so far
        self.idle_since = 0.0
        self.has_answered = False  # has sent a byte in this exchange
        self._owner = owner
        self._alarm = Alarm(loop, self._time_out)
        self._parser = httptools.HttpResponseParser(self)
        self._exchange: Exchange | None = None
        self._headers: RawHeaders = []
        self._header_bytes = 0  # parsed
        self._head_bytes = 0  # read, while the head was not complete
        self._head_only = False
        self._is_interim = False
        self._is_complete = False
        self._keep_alive = False
        self._is_paused = False
        self._is_clogged = False  # the request does not fit the socket's buffer

    @property
    def is_usable(self) -> bool:
        return not self._transport.is_closing()

    def start(self, method: str, message: list[bytes], timeouts: Timeouts) -> Exchange:
        """Send a request; its answer arrives through the exchange."""
        assert self._exchange is None, "one exchange at a time"
        self.exchanges += 1
        self.has_answered = False
        self._header_bytes = self._head_bytes = 0
        self._head_only = method == "HEAD"
        self._exchange = exchange = Exchange(self, timeouts)
        self._transport.writelines(message)
        return exchange

    def abort(self) -> None:
        self._exchange = None
        self._transport.abort()

    def fail(self, error: Exception) -> None:
        """Close at once; whoever waits for the answer gets `error`."""
        exchange = self._exchange
        self.abort()
        if exchange is not None:
            exchange.fail(error)

    # --- exchange.Line -------------------------------------------------------------------------

    def expect(self) -> None:
        assert self._exchange is not None
        limit = self._exchange.timeouts.get("write" if self._is_clogged else "read")
        if limit is None:
            self._alarm.lift()
        else:
            self._alarm.set(self.loop.time() + limit)

    def heard(self) -> None:
        self._alarm.lift()

    def pause(self) -> None:
        if not self._is_paused:
            self._is_paused = True
            self._transport.pause_reading()

    def resume(self) -> None:
        if self._is_paused:
            self._is_paused = False
            self._transport.resume_reading()

    # --- asyncio.Protocol ----------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        if self._exchange is None:
            self.abort()
            return
        self.has_answered = True
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self.fail(httpx.RemoteProtocolError(_told(error)))
            return
        if self._is_complete:
            self._retire()
        elif self._exchange is not None and not self._exchange.status:
            self._bound_head(len(data))

    def eof_received(self) -> None:
        self._end(None)

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(exc)
        self._alarm.stop()
        del self._parser  # it holds this connection's methods
        self._owner.lost(self)

    def pause_writing(self) -> None:
        self._is_clogged = True

    def resume_writing(self) -> None:
        self._is_clogged = False
        if self._exchange is not None and self._exchange.is_awaited:
            self.expect()

    # --- httptools -----------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        if self._exchange is None:
            raise httpx.RemoteProtocolError("data after the end of the answer")
        self._headers = []

    def on_header(self, name: bytes, value: bytes) -> None:
        self._header_bytes += len(name) + len(value) + 4
        if self._header_bytes > HEAD_LIMIT:
            raise httpx.RemoteProtocolError("response head too large")
        self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        self._is_interim = status < 200
        if status < 100:
            raise httpx.RemoteProtocolError("no such status")
        if status == 101:
            raise httpx.RemoteProtocolError("protocol switched unasked")
        if self._is_interim or self._exchange is None:
            return
        self._keep_alive = self._parser.should_keep_alive() and not self._head_only
        self._exchange.begin(status, self._headers)
        self._headers = []  # trailers land here and are forgotten
        if self._head_only:
            self._complete()  # the parser would wait for a body that a HEAD never brings

    def on_body(self, data: bytes) -> None:
        if self._exchange is not None:
            self._exchange.feed(data)

    def on_message_complete(self) -> None:
        if not self._is_interim and self._exchange is not None:
            self._complete()

    # --- ends ----------------------------------------------------------------------------------

    def _complete(self) -> None:
        assert self._exchange is not None
        self._exchange.finish()
        self._exchange = None
        self._is_complete = True  # but the rest of this read may still spoil it

    def _retire(self) -> None:
        self._is_complete = False
        if self._keep_alive and self.is_usable and not self._transport.get_write_buffer_size():
            self.resume()
            self._owner.freed(self)
        else:
            self.abort()

    def _end(self, exc: Exception | None) -> None:
        exchange, self._exchange = self._exchange, None
        if exchange is None:
            return
        if exc is not None:
            exchange.fail(httpx.ReadError(str(exc)))
        elif not exchange.status:
            exchange.fail(httpx.RemoteProtocolError("server closed without sending an answer"))
        elif _is_framed(exchange.headers):
            exchange.fail(httpx.RemoteProtocolError("server closed in the middle of the body"))
        else:
            exchange.finish()

    def _time_out(self) -> None:
        if self._is_clogged:
            self.fail(httpx.WriteTimeout("the request could not be sent in time"))
        else:
            self.fail(httpx.ReadTimeout("nothing arrived in time"))

    def _bound_head(self, size: int) -> None:
        """For the header that never ends: `on_header` counts the others."""
        self._head_bytes += size
        if self._head_bytes > HEAD_LIMIT:
            self.fail(httpx.RemoteProtocolError("response head too large"))


def _is_framed(headers: RawHeaders) -> bool:
    """Whether the body says by itself where it ends."""
    codings = [value for name, value in headers if name.lower() == b"transfer-encoding"]
    if codings:
        return codings[-1].lower().rstrip().endswith(b"chunked")
    return any(name.lower() == b"content-length" for name, _ in headers)


def _told(error: Exception) -> str:
    """What a callback complained about, else what the parser did."""
    return str(error.__context__ or error) or type(error).__name__
