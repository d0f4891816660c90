"""Meters streams of typed events, which say by themselves what they are. The bytes pass untouched.

1. `tokens` never exceeds what was produced: it counts deltas that carry something, and engines pack
   several tokens into one but never send one for nothing.
2. Usage comes with the end; what comes before it is of a part, and is never less than was seen.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gateway.dialects import Dialect
from gateway.wire import sse
from gateway.wire.answers import (
    message_reasons,
    messages_usage,
    response_reasons,
    response_usage,
)
from gateway.wire.meter import DONE, Meter
from gateway.wire.usage import Usage, count_in, decode, read_error

Frame = dict[str, Any]
RESPONSE_ENDS = ("response.completed", "response.incomplete", "response.failed")


class EventMeter(Meter):
    """Of a route whose events carry a `type`; a subclass says what each type tells."""

    __slots__ = ("_closed", "_usage")

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
        super().__init__(dialect, asked_usage=asked_usage, expected=expected, limit=limit)
        self._usage: Usage | None = None
        self._closed = False  # the usage is of the whole answer

    @property
    def usage(self) -> Usage | None:
        if self._usage is None or self._closed:
            return self._usage
        return self._usage._replace(completion=max(self._usage.completion, self.tokens))

    @property
    def usage_is_final(self) -> bool:
        return self._closed

    def _event(self, event: bytes) -> bytes:
        if self.done:
            return b""
        data = sse.data_of(event)
        if data is None:
            return event
        if data.strip() == DONE:
            return self._done(event)
        frame = decode(data)
        if isinstance(frame, dict):
            self._read(str(frame.get("type")), frame)
        return event

    def _read(self, kind: str, frame: Frame) -> None:
        raise NotImplementedError

    def _content(self, said: object) -> None:
        if isinstance(said, str) and said:
            self.tokens += 1
            self.first_content_seen = True

    def _error(self, frame: Frame) -> None:
        self.error = read_error(frame) or read_error({"error": frame})


class MessagesMeter(EventMeter):
    """Anthropic's: usage begins with `message_start` and grows with each `message_delta`."""

    __slots__ = ()

    def _read(self, kind: str, frame: Frame) -> None:
        reader = _MESSAGES.get(kind)
        if reader is not None:
            reader(self, frame)

    def _begin(self, frame: Frame) -> None:
        message = frame.get("message")
        if isinstance(message, dict):
            self._usage = messages_usage(message.get("usage"))

    def _delta(self, frame: Frame) -> None:
        delta = frame.get("delta")
        if isinstance(delta, dict):
            self._content(delta.get("text") or delta.get("thinking") or delta.get("partial_json"))

    def _more(self, frame: Frame) -> None:
        usage = self._grown(frame.get("usage"))
        reasons = message_reasons(frame.get("delta"))
        self.finish_reasons |= reasons
        if usage is not None:
            self._usage = usage
            self._closed = bool(reasons)

    def _grown(self, given: object) -> Usage | None:
        """What a delta leaves out stays as the start told it. One that tells of the cache without
        telling the input anew divides the prompt that is known, and adds nothing to it."""
        if not isinstance(given, dict):
            return None
        if count_in(given, "input_tokens") is not None or self._usage is None:
            return messages_usage(given)
        output = count_in(given, "output_tokens")
        if output is None:
            return None
        read = count_in(given, "cache_read_input_tokens")
        cached = self._usage.cached if read is None else min(read, self._usage.prompt)
        return Usage(self._usage.prompt, cached, output)

    def _stop(self, frame: Frame) -> None:
        self.done = True


_MESSAGES: dict[str, Callable[[MessagesMeter, Frame], None]] = {
    "message_start": MessagesMeter._begin,
    "content_block_delta": MessagesMeter._delta,
    "message_delta": MessagesMeter._more,
    "message_stop": MessagesMeter._stop,
    "error": MessagesMeter._error,
}


class ResponsesMeter(EventMeter):
    """Of responses: all that counts comes with the event that ends the stream."""

    __slots__ = ()

    def _read(self, kind: str, frame: Frame) -> None:
        if kind.endswith(".delta"):
            self._content(frame.get("delta"))
        elif kind in RESPONSE_ENDS:
            self._end(frame.get("response"))
        elif kind == "error":
            self._error(frame)

    def _end(self, response: object) -> None:
        """A response that failed is an error, whatever of it had come."""
        said = response if isinstance(response, dict) else {}
        self._usage = response_usage(said.get("usage"))
        self._closed = self._usage is not None
        self.finish_reasons |= response_reasons(said)
        if said.get("status") == "failed":
            self._error(said)
        self.done = True
