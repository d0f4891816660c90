"""Scripts of faults, in the notation of the project's cases: `in=10,out=20,hold=3s,cut@5`.

| word | what the engine does |
| --- | --- |
| in=N out=N cached=N | its usage is exactly this; it generates `out`, whatever is allowed |
| hold=T | waits before the first byte |
| gap=T | waits before each chunk after the first |
| nousage | tells no usage, asked or not |
| usage-every-chunk | tells the usage so far on every chunk and again at the end, asked or not |
| cut@N | closes the connection after N chunks with content (or half-way in an unstreamed answer) |
| error@N | after N chunks an error event inside the stream, then the end |
| hang, hang@N | never answers, or says nothing more after N chunks |
| wait, wait@N | says nothing before its answer, or after N chunks, until another script is set |
| status=N | answers with this status and an error |
| retry-after=N | puts this header on it, seconds |
| strict | refuses fields that are not OpenAI's, as some engines do |

T is `3s`, `100ms`, or seconds without a unit.
"""

from __future__ import annotations

from collections.abc import Callable
from math import isfinite
from typing import Any

import msgspec


class ScriptError(ValueError):
    """One line that names the word that is wrong."""


class Script(msgspec.Struct, frozen=True, kw_only=True):
    """None and 0 mean: behave."""

    prompt_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None
    hold_s: float = 0.0
    gap_s: float = 0.0
    usage: bool = True
    usage_every_chunk: bool = False
    cut_after: int | None = None
    error_after: int | None = None
    hang_after: int | None = None
    wait_after: int | None = None
    status: int | None = None
    retry_after: int | None = None
    strict: bool = False

    @property
    def paced(self) -> bool:
        """Chunks must leave one by one, because something happens between them."""
        stops = (self.cut_after, self.error_after, self.hang_after, self.wait_after)
        return self.gap_s > 0 or any(stop is not None for stop in stops)


BEHAVE = Script()


def _count(text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 9:
        raise ValueError("a whole number")
    return int(text)


def _status(text: str) -> int:
    status = _count(text)
    if not 400 <= status <= 599:
        raise ValueError("a status from 400 to 599")
    return status


def _seconds(text: str) -> float:
    unit = 1e-3 if text.endswith("ms") else 1.0
    try:
        seconds = float(text.removesuffix("ms").removesuffix("s")) * unit
    except ValueError:
        seconds = -1.0
    if not isfinite(seconds) or seconds < 0:
        raise ValueError("a time such as 3s or 100ms")
    return seconds


VALUES: dict[str, tuple[str, Callable[[str], Any]]] = {
    "in": ("prompt_tokens", _count),
    "out": ("output_tokens", _count),
    "cached": ("cached_tokens", _count),
    "hold": ("hold_s", _seconds),
    "gap": ("gap_s", _seconds),
    "cut": ("cut_after", _count),
    "error": ("error_after", _count),
    "hang": ("hang_after", _count),
    "wait": ("wait_after", _count),
    "status": ("status", _status),
    "retry-after": ("retry_after", _count),
}
FLAGS: dict[str, dict[str, Any]] = {
    "nousage": {"usage": False},
    "usage-every-chunk": {"usage_every_chunk": True},
    "hang": {"hang_after": 0},
    "wait": {"wait_after": 0},
    "retry-after": {"retry_after": 1},
    "strict": {"strict": True},
}


def parse(text: str) -> Script:
    """Raises ScriptError."""
    fields: dict[str, Any] = {}
    for word in filter(None, (part.strip() for part in text.split(","))):
        fields |= _word(word)
    return Script(**fields)


def _word(word: str) -> dict[str, Any]:
    if word in FLAGS:
        return FLAGS[word]
    name, _, value = word.replace("@", "=", 1).partition("=")
    if name not in VALUES:
        known = ", ".join(sorted({*VALUES, *FLAGS}))
        raise ScriptError(f"{word!r} is not a word of a script; known are: {known}")
    field, read = VALUES[name]
    try:
        return {field: read(value)}
    except ValueError as error:
        raise ScriptError(f"{word!r}: {name} takes {error}") from None
