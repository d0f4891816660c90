"""Server-sent events as bytes: where one ends, and what its data is.

1. An event ends at an empty line; lines end in LF or CRLF, mixed as a proxy may leave them, or in
   CR alone.
2. `data` may stand on several lines, with or without a space after the colon; a line that begins
   with a colon is a comment. A byte order mark may stand before the first.
"""

from __future__ import annotations

import re

MAX_EVENT_BYTES = 16 * 2**20
BOM = b"\xef\xbb\xbf"
_END = re.compile(rb"\n\r?\n")
_ANY_END = re.compile(rb"\n\r?\n|\r\r")  # looks at each byte, which the other one need not
_LONGEST_END = 3


class TooLarge(Exception):
    """An event passed MAX_EVENT_BYTES."""


class Splitter:
    """Bytes in, any split; whole events out, each with the empty line that ends it."""

    __slots__ = ("_end", "_held", "_scanned", "limit")

    def __init__(self, limit: int = MAX_EVENT_BYTES) -> None:
        self.limit = limit
        self._held = bytearray()
        self._scanned = 0  # no end begins before here
        self._end = _END

    def __bool__(self) -> bool:
        return bool(self._held)

    def feed(self, chunk: bytes) -> list[bytes]:
        """Whole events, in order.

        Raises:
            TooLarge: an event, finished or not, is past the limit.
        """
        held = self._held
        held += chunk
        if self._end is _END and b"\r" in chunk:
            self._end = _ANY_END
        events, start = [], 0
        for end in self._end.finditer(held, self._scanned):
            self._check(end.end() - start)
            events.append(bytes(held[start : end.end()]))
            start = end.end()
        if start:
            del held[:start]
        self._check(len(held))
        self._scanned = max(0, len(held) - _LONGEST_END + 1)
        return events

    def rest(self) -> bytes:
        """What is left of an event that never ended; nothing is held afterwards."""
        left = bytes(self._held)
        self._held.clear()
        self._scanned = 0
        return left

    def _check(self, size: int) -> None:
        if size > self.limit:
            raise TooLarge


def data_of(event: bytes) -> bytes | None:
    """An event's data, its lines joined; None for comments and events without data."""
    lines = [line for line in event.splitlines() if line.startswith(b"data:")]
    if not lines:
        return data_of(event[len(BOM) :]) if event.startswith(BOM) else None
    return b"\n".join(line[6:] if line[5:6] == b" " else line[5:] for line in lines)


def with_data(event: bytes, data: bytes) -> bytes:
    """The same event with other data, on one line; its other lines stay."""
    end = b"\r\n" if event.endswith(b"\r\n") else b"\n"
    lines = event.removeprefix(BOM).splitlines()
    others = [line for line in lines if line and not line.startswith(b"data:")]
    return end.join([*others, b"data: " + data, b"", b""])
