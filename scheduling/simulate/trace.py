"""Traces: who asked for how much, and when; and one row of a file, asked for its values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import isfinite
from typing import Any

Row = Mapping[str, Any]
PREFIX_TOKENS = 512  # of each id in `Arrival.blocks`; Mooncake's size


class TraceError(ValueError):
    """One line: the file, the line, the field, its value and what it takes."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """One request of a trace. `blocks` name the content of the prompt's leading tokens, so many
    `block_tokens` each; two prompts share what their lists begin with alike."""

    at: float  # seconds since the trace began
    tenant: str
    prompt_tokens: int
    output_tokens: int
    application: str = ""
    lane: str = ""  # "": the policy decides
    model: str = ""
    interaction: str = ""
    blocks: tuple[int, ...] = ()
    block_tokens: int = PREFIX_TOKENS


@dataclass(frozen=True, slots=True)
class Trace:
    name: str
    arrivals: tuple[Arrival, ...]
    notes: tuple[str, ...] = ()  # what was assumed or left out, for whoever reads the result

    @property
    def seconds(self) -> float:
        return self.arrivals[-1].at if self.arrivals else 0.0

    def cut(self, limit: int | None, scale: float) -> Trace:
        """Only the first `limit` arrivals, coming `scale` times as fast."""
        kept = self.arrivals[:limit]
        if scale != 1:
            kept = tuple(replace(arrival, at=arrival.at / scale) for arrival in kept)
        return replace(self, arrivals=kept)


class Fields:
    """One row, asked for its values by name. Each method raises TraceError."""

    def __init__(self, row: Row, where: str) -> None:
        self.row = row
        self.where = where

    def text(self, name: str) -> str:
        value = self.row.get(name)
        return "" if value is None else str(value)

    def number(self, name: str) -> float:
        try:
            value = float(self.row[name])
        except (TypeError, ValueError, KeyError):
            raise self.wrong(name, "a number") from None
        if not isfinite(value):
            raise self.wrong(name, "a finite number")
        return value

    def count(self, name: str, least: int = 0) -> int:
        value = self.number(name)
        if value != int(value) or value < least:
            raise self.wrong(name, f"a whole number from {least}")
        return int(value)

    def wrong(self, name: str, takes: str) -> TraceError:
        value = self.row.get(name)
        said = "is missing" if value is None else f"is {str(value)[:60]!r}"
        return TraceError(f"{self.where}: {name} {said}; it takes {takes}")
