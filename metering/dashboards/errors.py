"""How far estimates were off: figures and a small bar chart a model.

The pools page shows what gateways have learnt by now, prompt and output apart; the board of pools
what was held before the requests of a range, against what they cost.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from metering import selectors
from metering.core.error_book import Buckets, Errors, bucket
from metering.dashboards.watching import Watch
from metering.models import UsageRow

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
MOST = 5_000  # of a range's requests
NEAR_END = 500  # requests that came at about the same time got their ids in another order
MEASURED = ("engine", "counted")  # by whom, in `usage_source`
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
    seen: int  # of what is learnt at most `error_book.MOST_WEIGHT`: recent ones weigh more
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


def rows_of(watch: Watch) -> list[Row]:
    """Of requests that were served and measured, spread evenly over the range where it has more
    than `MOST`: three quick queries, however long it is."""
    span, pool = watch.span, watch.filters.pool
    within = UsageRow.objects.filter(at__gte=span.since, at__lt=span.until)
    ids = within.values_list("id", flat=True)
    ends = [*ids.order_by("at")[:NEAR_END], *ids.order_by("-at")[:NEAR_END]]
    if not ends:
        return []
    step = -(-(max(ends) + 1 - min(ends)) // MOST)
    found = within.filter(
        id__in=range(min(ends), max(ends) + 1, step),
        status__lt=400,
        cost__gt=0,
        estimated_cost__gt=0,
        usage_source__in=MEASURED,
        **({"model": pool} if pool else {}),
    )
    by_model: dict[str, Buckets] = defaultdict(lambda: defaultdict(float))
    for model, cost, estimate in found.values_list("model", "cost", "estimated_cost"):
        by_model[model][bucket((cost - estimate) / cost)] += 1.0
    return [_row(m, "cost", "", Errors(each)) for m, each in sorted(by_model.items())]


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
