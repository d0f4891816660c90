"""What every meter of a stream has: whole events out of any split of bytes, and how a stream ends.

1. The caller gets whole events only; how the engine's bytes are split changes neither what is
   passed on nor what is counted.
2. After the event that ends a stream nothing is passed on and nothing counts.
"""

from __future__ import annotations

from typing import NamedTuple

from gateway.dialects import Dialect
from gateway.errors import ApiError, Outcome
from gateway.wire import sse
from gateway.wire.usage import EngineError, Usage, decode

DONE = b"[DONE]"


class Ending(NamedTuple):
    rest: bytes  # still to be passed on; whole events or nothing
    complete: bool  # the engine finished what it had to say


class Meter:
    """One stream's. `asked_usage`: the caller wants the usage frame; `asked_running`: on every
    frame. `expected` is the number of choices, for streams that end without their last event, and
    `prompts` of how many prompts they are."""

    __slots__ = (
        "_expected",
        "_split",
        "done",
        "error",
        "finish_reasons",
        "first_content_seen",
        "tokens",
    )

    def __init__(
        self,
        dialect: Dialect,
        *,
        asked_usage: bool,
        asked_running: bool = False,
        expected: int = 1,
        prompts: int = 1,
        limit: int = sse.MAX_EVENT_BYTES,
    ) -> None:
        self.first_content_seen = False
        self.tokens = 0  # a floor of the completion tokens produced
        self.finish_reasons: dict[int, str] = {}  # by choice, the engine's words
        self.done = False  # the event that ends a stream was seen
        self.error: EngineError | None = None  # an error was seen (and passed on)
        self._expected = expected
        self._split = sse.Splitter(limit)

    @property
    def usage(self) -> Usage | None:
        """The engine's own figures so far; None when it gave none."""
        raise NotImplementedError

    @property
    def usage_is_final(self) -> bool:
        """Whether `usage` is of the whole request, not of a part that had streamed."""
        raise NotImplementedError

    def feed(self, chunk: bytes) -> bytes:
        """What of the stream can be passed on now.

        Raises:
            ApiError: engine_error, an event is larger than the limit.
        """
        if self.done:
            return b""
        try:
            events = self._split.feed(chunk)
        except sse.TooLarge:
            self._split.rest()
            limit = self._split.limit
            message = f"the engine sent an event of more than {limit} bytes"
            raise ApiError(Outcome.ENGINE_ERROR, message) from None
        return b"".join(map(self._event, events))

    def finish(self) -> Ending:
        """The engine closed the stream, or it broke. A last event that lacks only its empty line
        is whole; anything less is dropped."""
        left = self._split.rest()
        data = sse.data_of(left)
        whole = data is not None and (data.strip() == DONE or isinstance(decode(data), dict))
        rest = self._event(left.rstrip(b"\r\n") + b"\n\n") if whole else b""
        complete = self.error is None and (self.done or self._finished())
        return Ending(rest, complete)

    def _finished(self) -> bool:
        return len(self.finish_reasons) >= self._expected

    def _done(self, event: bytes) -> bytes:
        """`[DONE]`: after an error it would say that all went well."""
        self.done = True
        return b"" if self.error is not None else event

    def _event(self, event: bytes) -> bytes:
        """Reads one event; what of it is shown."""
        raise NotImplementedError
