"""What pages, API and commands may read of metering. Plain data out.

Ranges are half-open: `since <= at < until`, aware datetimes. Ranges over time are answered from
the roll-ups, and from raw rows only for the last few minutes that are not rolled up yet, so no
page's cost grows with the number of records. Such ranges are widened to whole minutes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, NamedTuple

from django.db.models import Max, QuerySet
from django.db.models.functions import Substr

from metering import learnt
from metering.core.error_book import ErrorBook, Errors
from metering.core.predictor import OutputPredictor
from metering.core.prompt_estimate import PromptEstimator
from metering.core.record import UsageRecord
from metering.counting import Total, Where
from metering.models import Alert, GatewaySample, UsageRow
from metering.reading import Reading
from tenants.selectors import current_document

Dimension = Literal["tenant", "application", "key", "model", "lane"]

RECORD = UsageRecord.__struct_fields__
OWN_ID_CHARS = 32  # of a request id that the gateway makes
PROXY_NAMES_FOR = timedelta(days=7)
SHARE_SKETCHES = ("queue_ms", "ttft_ms", "e2e_ms")


@dataclass(frozen=True, slots=True)
class Share:
    """One group's part of all usage in a range; shares are of the whole answer, 0..1."""

    name: str
    requests: int
    throttled: int
    errors: int  # of status 500 and above, where no limit decided
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    tokens: int  # prompt + completion
    cost: float
    token_share: float
    cost_share: float
    throttle_rate: float  # throttled / requests
    queue_p50_ms: float | None  # None: nothing measured
    queue_p95_ms: float | None
    ttft_p50_ms: float | None
    ttft_p95_ms: float | None
    e2e_p95_ms: float | None


@dataclass(frozen=True, slots=True)
class PastWindow:
    start: datetime
    end: datetime
    used: float  # service units


@dataclass(frozen=True, slots=True)
class EstimateError:
    """How well the gateway guesses for one model; None, or empty: nothing learnt yet."""

    model: str
    bytes_per_token: float | None
    output_tokens: float | None  # of an answer, on the mean
    prompt: Errors  # of what admission held, against what the engine counted
    output: Errors


def breakdown(
    by: Dimension, since: datetime, until: datetime, tenant: str | None = None
) -> list[Share]:
    """Who used something in the range, largest cost first; within one tenant where one is given."""
    reading = Reading(since, until)
    found = reading.totals((by,), _of(tenant), tallies=("throttled",), sketches=SHARE_SKETCHES)
    return shares_of({name: total for (name,), total in found.items()})


def shares_of(totals: Mapping[str, Total]) -> list[Share]:
    """Largest cost first."""
    tokens = sum(total.tokens for total in totals.values())
    cost = sum(total.cost for total in totals.values())
    shares = [_share(name, total, tokens, cost) for name, total in totals.items()]
    return sorted(shares, key=lambda share: (-share.cost, share.name))


def _of(tenant: str | None) -> Where:
    return {} if tenant is None else {"tenant": tenant}


def latest_samples(at: datetime | None = None, max_age_s: float = 5.0) -> list[dict[str, Any]]:
    """The live state of each gateway heard of within `max_age_s`; shape: docs/architecture.md."""
    at = at or datetime.now(UTC)
    young = GatewaySample.objects.filter(at__gt=at - timedelta(seconds=max_age_s), at__lte=at)
    newest = young.order_by().values("gateway").annotate(newest=Max("id")).values("newest")
    rows = GatewaySample.objects.filter(id__in=newest).order_by("gateway")
    return list(rows.values_list("state", flat=True))


class Heard(NamedTuple):
    last: datetime  # by the database's clock
    ahead_s: float  # of its own clock before the database's; by the sample that was least late


def heard(max_age_s: float) -> dict[str, Heard]:
    """Of each gateway that told of itself within `max_age_s`."""
    young = GatewaySample.objects.filter(at__gt=datetime.now(UTC) - timedelta(seconds=max_age_s))
    found: dict[str, Heard] = {}
    for gateway, at, told in young.order_by("id").values_list("gateway", "at", "state__at"):
        ahead = (datetime.fromisoformat(told) - at).total_seconds()
        earlier = found.get(gateway)
        found[gateway] = Heard(at, max(ahead, earlier.ahead_s) if earlier else ahead)
    return found


def open_alerts(limit: int = 20) -> list[Alert]:
    """What a person should look at, newest first. Do not write to these rows."""
    return list(Alert.objects.filter(resolved_at=None).order_by("-last_at", "-id")[:limit])


def estimate_errors() -> dict[str, EstimateError]:
    """By model, as a gateway saved it last: at most half a minute ago while one runs."""
    output, prompt = OutputPredictor(), PromptEstimator()
    of_output, of_prompt = ErrorBook(), ErrorBook()
    learnt.restore(learnt.load(), output, prompt, of_output, of_prompt)
    lengths = {model: mean for model, (mean, _) in output.errors().items()}
    ratios = {model: ratio for model, (ratio, _) in prompt.errors().items()}
    outputs, prompts = of_output.models(), of_prompt.models()
    return {
        model: EstimateError(
            model=model,
            bytes_per_token=ratios.get(model),
            output_tokens=lengths.get(model),
            prompt=prompts.get(model) or Errors(),
            output=outputs.get(model) or Errors(),
        )
        for model in sorted({*lengths, *ratios, *outputs, *prompts})
    }


def recent_records(tenant: str | None = None, limit: int = 50) -> list[UsageRecord]:
    """The newest records, newest first."""
    rows = _rows(tenant, None, None).order_by("-at", "-id")[:limit]
    return [_record(row) for row in rows.values_list(*RECORD)]


def find_record(request_id: str, tenant: str | None = None) -> UsageRecord | None:
    """One request by its id, the `x-request-id` of its answer; within one tenant where one is
    given. None too while it runs, and once its record is past the time that records are kept."""
    rows = _rows(tenant, None, None).filter(request_id=request_id)
    row = rows.values_list(*RECORD).first()
    if row is None and request_id:
        row = _named_by_proxy(request_id, tenant).values_list(*RECORD).first()
    return None if row is None else _record(row)


def _named_by_proxy(name: str, tenant: str | None) -> QuerySet[UsageRow, Any]:
    """A trusted proxy's id stands in a record's after the gateway's own and a dot, and several can
    have it: the newest goes first. No index knows it, so only some days are looked through."""
    rows = _rows(tenant, datetime.now(UTC) - PROXY_NAMES_FOR, None)
    return (
        rows.filter(request_id__endswith=f".{name}")
        .annotate(given=Substr("request_id", OWN_ID_CHARS + 2))
        .filter(given=name)
        .order_by("-at")
    )


def knows_tenant(name: str | None) -> bool:
    """It is in the policy, or has records still; None is all tenants."""
    if name is None or UsageRow.objects.filter(tenant=name).exists():
        return True
    return any(tenant.name == name for tenant in current_document().tenants)


def export_records(
    tenant: str | None = None, since: datetime | None = None, until: datetime | None = None
) -> Iterator[UsageRecord]:
    """All records of the range, oldest first, streamed: memory does not grow with their number."""
    rows = _rows(tenant, since, until).order_by("at", "id")
    for row in rows.values_list(*RECORD).iterator(chunk_size=2000):
        yield _record(row)


# --- how it is found ------------------------------------------------------------------------


def _rows(
    tenant: str | None, since: datetime | None, until: datetime | None
) -> QuerySet[UsageRow, Any]:
    rows = UsageRow.objects.all()
    if tenant is not None:
        rows = rows.filter(tenant=tenant)
    if since is not None:
        rows = rows.filter(at__gte=since)
    return rows if until is None else rows.filter(at__lt=until)


def _record(row: tuple[Any, ...]) -> UsageRecord:
    named = dict(zip(RECORD, row, strict=True))
    return UsageRecord(**{**named, "accounts": tuple(named["accounts"])})


def _share(name: str, total: Total, all_tokens: int, all_cost: float) -> Share:
    requests, refused = total.requests, total.throttled.total()
    return Share(
        name=name,
        requests=requests,
        throttled=refused,
        errors=total.errors,
        prompt_tokens=int(total.sums["prompt_tokens"]),
        cached_tokens=int(total.sums["cached_tokens"]),
        completion_tokens=int(total.sums["completion_tokens"]),
        tokens=total.tokens,
        cost=total.sums["cost"],
        token_share=total.tokens / all_tokens if all_tokens else 0.0,
        cost_share=total.sums["cost"] / all_cost if all_cost else 0.0,
        throttle_rate=refused / requests if requests else 0.0,
        queue_p50_ms=total.quantile("queue_ms", 0.5),
        queue_p95_ms=total.quantile("queue_ms", 0.95),
        ttft_p50_ms=total.quantile("ttft_ms", 0.5),
        ttft_p95_ms=total.quantile("ttft_ms", 0.95),
        e2e_p95_ms=total.quantile("e2e_ms", 0.95),
    )
