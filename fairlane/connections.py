"""How many connections this process holds, and which of them go first.

1. A connection is at rest while nothing of it is being answered: before its first head is whole,
   and between two requests.
2. Past the bound, the one that has been at rest for longest is closed. Where none is, the newcomer
   gets a 503.
3. What is answered before its body is there (a bad key, a body too large) has `LINGER_S` to end
   that body, which nobody reads any more; then its connection is closed.
4. Before a stop each answer says that it is its connection's last. Where another gateway can take
   over (`lets_rest`), one that was told nothing of the kind stays open for as long as it may rest:
   a proxy may be about to send a call on it, and would not try a POST again elsewhere.
"""

from __future__ import annotations

import asyncio
import resource
from typing import Any

import structlog

from fairlane.http import BoundedHttp

LINGER_S = 5.0
SPARE_FILES = 256  # for what is neither a caller nor an engine: journal, database, listeners
FULL = (
    b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\nretry-after: 1\r\n"
    b"connection: close\r\n\r\n"
)

log = structlog.get_logger("fairlane.serve")


class CountedHttp(BoundedHttp):
    most = 8192  # `serve` sets these
    stops = False
    lets_rest = False
    _at_rest: dict[CountedHttp, None] = {}  # the one that has been for longest is first

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._lingers: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        if len(self.connections) > self.most and not self._make_room():
            self.transport.write(FULL)
            self.transport.close()
        else:
            self._at_rest[self] = None

    def connection_lost(self, exc: Exception | None) -> None:
        self._at_rest.pop(self, None)
        self._stop_lingering()
        super().connection_lost(exc)

    def on_headers_complete(self) -> None:
        self._at_rest.pop(self, None)
        super().on_headers_complete()
        if self.stops and not self._is_wish:
            self.cycle.keep_alive = False

    def on_message_complete(self) -> None:
        super().on_message_complete()
        if self._is_wish:
            return
        self._stop_lingering()
        if self.cycle.response_complete:
            self._expect_head()  # uvicorn's own timer has ended with the first of the late body

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.cycle.response_complete and not self.transport.is_closing():
            self._at_rest[self] = None
            if self._in_body:
                self._lingers = self.loop.call_later(LINGER_S, self.transport.close)

    def shutdown(self) -> None:
        """The server stops: it waits until no connection is left, for as long as it may."""
        was_told = self.cycle is not None and not self.cycle.keep_alive
        is_begun = self.cycle is not None and self.cycle.response_started
        if was_told or not is_begun or not self.lets_rest:
            super().shutdown()

    def _make_room(self) -> bool:
        for resting in self._at_rest:
            if not resting.transport.is_closing():
                del self._at_rest[resting]
                resting.transport.close()
                return True
        return False

    def _stop_lingering(self) -> None:
        if self._lingers is not None:
            self._lingers.cancel()
            self._lingers = None


def bound(wanted: int) -> int:
    """As many as the process may have files for: each can need one more, to an engine."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    held = wanted if hard == resource.RLIM_INFINITY else (hard - SPARE_FILES) // 2
    if held < wanted:
        log.warning("fewer connections than wanted", wanted=wanted, most=held, open_files=hard)
    return max(1, min(wanted, held))
