"""What an engine tells of its load at `/metrics`, by the names of its dialect."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from gateway.dialects import Metrics

CACHE_CONFIG = "vllm:cache_config_info"


@dataclass(frozen=True, slots=True)
class Load:
    """`running` and `waiting` are requests in the batch and in the engine's own queue. `memory` is
    the part of its KV cache in use, `memory_tokens` how many tokens that has room for. None: it
    does not tell."""

    running: float
    waiting: float
    memory: float | None = None
    memory_tokens: int | None = None
    preemptions: float | None = None  # since its start
    queries: float | None = None  # prompt tokens looked up in the prefix cache, since its start
    hits: float | None = None  # and found there
    hit_rate: float | None = None

    def since(self, before: Load | None) -> float | None:
        """The part of looked-up prompt tokens that were found since `before`."""
        if self.hit_rate is not None:
            return self.hit_rate
        if before is None or None in (self.hits, self.queries, before.hits, before.queries):
            return None
        assert self.hits is not None
        assert self.queries is not None
        assert before.hits is not None
        assert before.queries is not None
        asked = self.queries - before.queries
        return min(1.0, max(0.0, self.hits - before.hits) / asked) if asked > 0 else None


def read(text: str, names: Metrics) -> Load | None:
    """None where it does not tell what runs and what waits. An engine of several ranks tells each
    one's numbers: requests add up, and the fullest memory counts."""
    found: dict[str, list[float]] = {}
    tokens: list[int] = []
    try:
        for name, labels, value in _samples(text, names):
            if name == CACHE_CONFIG:
                tokens += _tokens(labels)
            elif isfinite(value) and value >= 0:
                found.setdefault(name, []).append(value)
    except (ValueError, KeyError, IndexError):  # not the format
        return None
    sums = {figure: sum(found[name]) for figure, name in names.items() if name in found}
    if "running" not in sums or "waiting" not in sums:
        return None
    memory = max(found[names["memory"]]) if "memory" in sums else None
    figures = {**sums, "memory": memory}
    return Load(memory_tokens=sum(tokens) or None, **figures)  # type: ignore[arg-type]


def _samples(text: str, names: Metrics) -> Iterator[tuple[str, Mapping[str, str], float]]:
    """Only the lines that are wanted are parsed: an engine writes a thousand others."""
    wanted = (*names.values(), CACHE_CONFIG)
    lines = [line for line in text.splitlines() if line.startswith(wanted)]
    for family in text_string_to_metric_families("\n".join(lines) + "\n"):
        for sample in family.samples:
            if sample.name in wanted:
                yield sample.name, sample.labels, float(sample.value)


def _tokens(labels: Mapping[str, Any]) -> list[int]:
    """vLLM's KV cache, from the labels of its info metric."""
    try:
        return [int(labels["block_size"]) * int(labels["num_gpu_blocks"])]
    except (KeyError, ValueError):
        return []
