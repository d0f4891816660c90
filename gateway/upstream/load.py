"""What an engine tells of its load at `/metrics`, by the names of its dialect."""

from __future__ import annotations

from collections.abc import Iterator
from math import isfinite

import msgspec
from prometheus_client.parser import text_string_to_metric_families

from gateway.dialects import Metrics


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """`running` and `waiting` are requests in the batch and in the engine's own queue, `memory` is
    the part of its KV cache in use; None: it does not tell."""

    running: float
    waiting: float
    memory: float | None = None
    preemptions: float | None = None  # since its start
    queries: float | None = None  # prompt tokens looked up in the prefix cache, since its start
    hits: float | None = None  # and found there
    hit_rate: float | None = None

    def found_since(self, before: Load | None) -> float | None:
        """The part of the prompt tokens looked up since `before` that were in the prefix cache."""
        if self.hit_rate is not None:
            return self.hit_rate
        if before is None or self.queries is None or before.queries is None:
            return None
        asked = self.queries - before.queries
        found = (self.hits or 0.0) - (before.hits or 0.0)
        return min(1.0, max(0.0, found) / asked) if asked > 0 else None


def read(text: str, names: Metrics) -> Load | None:
    """None where it does not tell what runs and what waits. An engine of several ranks tells each
    one's numbers: they add up, but of parts the largest counts."""
    found: dict[str, list[float]] = {}
    try:
        for name, value in _samples(text, tuple(names.values())):
            found.setdefault(name, []).append(value)
    except (ValueError, KeyError, IndexError):  # not the format
        return None
    figures = {
        figure: max(found[name]) if figure in ("memory", "hit_rate") else sum(found[name])
        for figure, name in names.items()
        if name in found
    }
    if "running" not in figures or "waiting" not in figures:
        return None
    return Load(**figures)


def _samples(text: str, names: tuple[str, ...]) -> Iterator[tuple[str, float]]:
    """Only the lines that are wanted are parsed: an engine writes a thousand others."""
    lines = [line for line in text.splitlines() if line.startswith(names)]
    for family in text_string_to_metric_families("\n".join(lines) + "\n"):
        for sample in family.samples:
            value = float(sample.value)
            if sample.name in names and isfinite(value) and value >= 0:
                yield sample.name, value
