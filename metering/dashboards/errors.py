"""How far estimates were off, as the pools page shows it: figures and a small bar chart a model."""

from __future__ import annotations

from dataclasses import dataclass

from metering import selectors
from metering.core.error_book import Errors

# (actual − estimate) / actual: bars from "far too high an estimate" to "far too low a one"
EDGES = (-1.0, -0.5, -0.25, -0.1, -0.02, 0.02, 0.1, 0.25, 0.5)
LABELS = (
    "more than 100% too high",
    "50 to 100% too high",
    "25 to 50% too high",
    "10 to 25% too high",
    "2 to 10% too high",
    "within 2%",
    "2 to 10% too low",
    "10 to 25% too low",
    "25 to 50% too low",
    "more than 50% too low",
)
EVEN = 0.02  # a median nearer to zero leans to neither side


@dataclass(frozen=True, slots=True)
class Bar:
    label: str
    part: float  # of all requests
    height: float  # of the tallest bar


@dataclass(frozen=True, slots=True)
class Row:
    """One model and one kind of estimate; sizes are parts of what came."""

    model: str
    what: str
    learnt: str
    seen: int  # recent ones weigh more, so this is at most `error_book.MOST_WEIGHT`
    p50: float | None
    p90: float | None
    p99: float | None
    lean: str
    bars: list[Bar]


def rows() -> list[Row]:
    found = []
    for each in selectors.estimate_errors().values():
        ratio, length = each.bytes_per_token, each.output_tokens
        by_bytes = "" if ratio is None else f"{ratio:.2f} bytes a token"
        by_length = "" if length is None else f"{length:,.0f} tokens on the mean"
        found.append(_row(each.model, "prompt", by_bytes, each.prompt))
        found.append(_row(each.model, "output", by_length, each.output))
    return found


def _row(model: str, what: str, learnt: str, errors: Errors) -> Row:
    parts = errors.parts(EDGES)
    tallest = max(parts) or 1.0
    return Row(
        model=model,
        what=what,
        learnt=learnt,
        seen=round(errors.total),
        p50=errors.quantile(0.5),
        p90=errors.quantile(0.9),
        p99=errors.quantile(0.99),
        lean=_lean(errors.median()),
        bars=[Bar(*each, each[1] / tallest) for each in zip(LABELS, parts, strict=True)],
    )


def _lean(median: float | None) -> str:
    if median is None:
        return ""
    if abs(median) < EVEN:
        return "neither"
    return "too low" if median > 0 else "too high"
