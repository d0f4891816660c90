"""Meters an engine's stream while it passes, and hides what the caller did not ask for.

1. The caller gets whole events only, as the engine wrote them; a usage object that is hidden is
   cut out of the bytes around it.
2. How the engine's bytes are split changes neither what is passed on nor what is counted: each
   event is judged by itself, in order. Only the shortcut for several plain events at once looks
   at a chunk, and it takes only what the judgement of each would.
3. `tokens` never exceeds what was produced: it counts frames that carry content, and engines pack
   several tokens into a frame but never send one for nothing.
4. A usage of the whole request (a frame without choices) beats running ones; of those the last
   for each choice counts, so a usage that comes on every frame is counted once (case D13).
5. After `[DONE]` nothing is passed on and nothing counts.
6. JSON is parsed only where bytes say that there may be something to read. Frames of one stream
   differ in one text, so what surrounds it is learnt; a frame of that shape needs two comparisons.
"""

from __future__ import annotations

import json
import re
from typing import Any

from gateway.dialects import Dialect
from gateway.wire import sse
from gateway.wire.meter import DONE, Meter
from gateway.wire.usage import (
    Usage,
    choice_index,
    choices,
    decode,
    finish_reasons,
    read_error,
    read_usage,
)

_USAGE = b'"usage"'
_END = b"}\n\n"
_NO_SHAPE = (b"\n", b"")  # no event begins so
_TEXT = re.compile(rb'"(?:content|text|reasoning_content|reasoning|arguments)" ?: ?"([^"\\]+)"')
# A usage that is the last thing in a frame: after it only the frame's own brace is left.
_TAIL = re.compile(rb'"usage"\s*:\s*(\{[^{}]*(?:\{[^{}]*\}[^{}]*)*\})\s*(\}\s*)')


class StreamMeter(Meter):
    """Of chat and plain completions."""

    __slots__ = (
        "_choices_each",
        "_closed",
        "_final",
        "_final_at",
        "_hide_final",
        "_hide_running",
        "_per_choice",
        "_running",
        "_shape",
        "_unread",
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
        super().__init__(dialect, asked_usage=asked_usage, expected=expected, limit=limit)
        self._choices_each = max(1, expected // prompts)  # of one prompt, numbered in a row
        self._per_choice = dialect.usage_per_choice and expected > 1
        self._hide_final = not asked_usage
        self._hide_running = not asked_usage or (dialect.running_usage and not asked_running)
        self._final: Usage | None = None  # of a frame of its own,
        self._final_at = 0  # after so many tokens: of the whole only where no more came
        self._running: dict[int, Usage] = {}
        self._unread = b""  # the latest running usage of the one choice, not yet parsed
        self._closed: set[int] = set()  # choices whose last frame carried a usage
        self._shape = _NO_SHAPE  # of a content frame: what stands before and after its text

    @property
    def usage(self) -> Usage | None:
        self._read_running()
        if self._final is not None:
            more = self.tokens - self._final_at
            return self._final._replace(completion=self._final.completion + more)
        if not self._running:
            return None
        seen = self._running.values()
        completion = sum(usage.completion for usage in seen)
        return Usage(
            self._prompt_so_far(),
            min(usage.cached for usage in seen),
            max(completion, self.tokens),
        )

    def _prompt_so_far(self) -> int:
        """A running usage tells the prompt of its own choice (vLLM 0.32)."""
        prompts: dict[int, int] = {}
        for index, usage in self._running.items():
            of = index // self._choices_each
            prompts[of] = max(prompts.get(of, 0), usage.prompt)
        return sum(prompts.values())

    @property
    def usage_is_final(self) -> bool:
        self._read_running()
        if self._final is not None:
            return self._final_at == self.tokens
        return len(self._closed) >= self._expected

    def feed(self, chunk: bytes) -> bytes:
        if not self.done and not self._split and len(chunk) <= self._split.limit:
            shown = self._content(chunk)
            if shown is not None:
                return shown
        return super().feed(chunk)

    def _event(self, event: bytes) -> bytes:
        if self.done:
            return b""
        if (shown := self._content(event)) is not None:
            return shown
        data = sse.data_of(event)
        if data is None:
            return event
        if data.strip() == DONE:
            return self._done(event)
        frame = decode(data)
        return self._frame(event, frame) if isinstance(frame, dict) else event

    def _content(self, events: bytes) -> bytes | None:
        """Plain content frames, or one with a running usage; None for all that needs a parse.
        The first content is parsed, so that nothing empty is taken for it."""
        if not self.first_content_seen:
            return None
        head, tail = self._shape
        if events.startswith(head):
            quote = events.find(b'"', len(head))
            if quote > len(head) and events.startswith(tail, quote):
                end = quote + len(tail)
                if events[end:] == _END:
                    self.tokens += 1
                    return events
                if self._expected == 1 and (cut := _cut(events, end + 1)) is not None:
                    return self._with_usage(events, *cut)
        return self._unfamiliar(events)

    def _unfamiliar(self, events: bytes) -> bytes | None:
        if self._expected > 1 and b'"role"' in events:
            return None  # another choice may begin, with nothing to say yet
        if count := _plain_events(events):
            self.tokens += count
            self._shape = _shape(events) if count == 1 else self._shape
            return events
        if self._expected != 1 or (cut := _cut(events, events.find(_USAGE))) is None:
            return None
        if _plain_events(cut[0]) != 1:
            return None
        self._shape = _shape(cut[0])
        return self._with_usage(events, *cut)

    def _with_usage(self, event: bytes, bare: bytes, usage: bytes) -> bytes:
        self.tokens += 1
        self._unread = usage
        return bare if self._hide_running else event

    def _read_running(self) -> None:
        unread, self._unread = self._unread, b""
        if unread and (usage := read_usage(decode(unread))) is not None:
            self._running[0], self._final = usage, None

    def _frame(self, event: bytes, frame: dict[str, Any]) -> bytes:
        if (error := read_error(frame)) is not None:
            self.error = error
        present = choices(frame)
        with_content = sum(map(_has_content, present))
        self.tokens += with_content
        self.first_content_seen = self.first_content_seen or with_content > 0
        reasons = finish_reasons(frame)
        self.finish_reasons |= reasons
        if not isinstance(frame.get("usage"), dict):
            return event
        self._note(frame, present, reasons)
        if not present:
            return b"" if self._hide_final else event
        if self._hide_final or self._hide_running:
            return _without_usage(event, frame)
        return event

    def _note(
        self, frame: dict[str, Any], present: list[dict[str, Any]], reasons: dict[int, str]
    ) -> None:
        self._read_running()
        usage = read_usage(frame["usage"])
        if usage is None:
            return
        if present:
            self._running[choice_index(present[0], 0)], self._final = usage, None
            self._closed |= reasons.keys()
            return
        if self._per_choice and self._final is not None:
            usage = _summed(self._final, usage)
        self._final, self._final_at = usage, self.tokens


def _plain_events(chunk: bytes) -> int:
    """How many events these bytes are, when each is one content frame of one data line that holds
    no usage, finish reason, error or empty value; else 0."""
    if not chunk.startswith(b"data: {") or not chunk.endswith(_END):
        return 0
    if not _all_null(chunk, _USAGE) or not _all_null(chunk, b'"finish_reason"'):
        return 0
    if b'""' in chunk or b"{}" in chunk or b"[]" in chunk or b'"error"' in chunk:
        return 0
    count = chunk.count(b'"choices":')
    # Line ends never stand raw inside JSON, so counting them shows that nothing else is there.
    if not count or chunk.count(b"\n") != 2 * count or chunk.count(b"}\n\ndata: {") != count - 1:
        return 0
    return count


def _all_null(chunk: bytes, key: bytes) -> bool:
    named = chunk.count(key)
    if not named:
        return True
    null = chunk.count(key + b":null")
    return null == named or null + chunk.count(key + b": null") == named


def _has_content(choice: dict[str, Any]) -> bool:
    """Text, reasoning, a refusal, a tool call: whatever a choice carries but its role."""
    if choice.get("text"):
        return True
    delta = choice.get("delta")
    return isinstance(delta, dict) and any(v for k, v in delta.items() if k != "role")


def _summed(first: Usage, other: Usage) -> Usage:
    """Usage of two choices of one request: one prompt, and both their outputs."""
    return Usage(
        max(first.prompt, other.prompt),
        min(first.cached, other.cached),
        first.completion + other.completion,
    )


def _shape(event: bytes) -> tuple[bytes, bytes]:
    text = _TEXT.search(event)
    return (event[: text.start(1)], event[text.end(1) : -len(_END)]) if text else _NO_SHAPE


def _cut(event: bytes, at: int) -> tuple[bytes, bytes] | None:
    """The event without the usage that begins at `at`, and the usage, when it is a frame's last
    member."""
    tail = _TAIL.match(event, at) if at > 0 else None
    if tail is None or tail.end() != len(event):
        return None
    head = event[:at].rstrip()
    return (head[:-1] + tail[2], tail[1]) if head.endswith(b",") else None


def _without_usage(event: bytes, frame: dict[str, Any]) -> bytes:
    cut = _cut(event, event.rfind(_USAGE))
    if cut is not None:
        return cut[0]
    shown = {name: value for name, value in frame.items() if name != "usage"}
    return sse.with_data(event, json.dumps(shown, separators=(",", ":")).encode())
