"""What pages, API and commands may read of metering. Plain data out.

Ranges are half-open: `since <= at < until`, aware datetimes. Ranges over time are answered from
the roll-ups, and from raw rows only for the last few minutes that are not rolled up yet, so no
page's cost grows with the number of records.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal

from metering.core.record import UsageRecord

Dimension = Literal["tenant", "application", "model", "lane"]


@dataclass(frozen=True, slots=True)
class Share:
    """One group's part of all usage in a range; shares are of the whole answer, 0..1."""

    name: str
    requests: int
    throttled: int
    errors: int
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
class SeriesPoint:
    at: datetime  # start of the step
    tenant: str
    requests: int
    throttled: int
    prompt_tokens: int
    completion_tokens: int
    cost: float


@dataclass(frozen=True, slots=True)
class ThrottleCount:
    tenant: str
    reason: str
    count: int


@dataclass(frozen=True, slots=True)
class DebtPoint:
    """One tenant's standing in one lane of one pool, as one gateway saw it at one moment."""

    at: datetime
    gateway: str
    pool: str
    lane: str
    tenant: str
    debt: float
    counter: float
    queued: int
    running: int
    bound_units: float


def tenant_overview(since: datetime, until: datetime) -> list[Share]:
    """Every tenant with usage in the range, largest cost first."""
    return breakdown("tenant", since, until)


def breakdown(
    by: Dimension, since: datetime, until: datetime, tenant: str | None = None
) -> list[Share]:
    """As `tenant_overview`, by another dimension, and within one tenant where one is given."""
    raise NotImplementedError


def token_series(
    since: datetime, until: datetime, step: timedelta, tenant: str | None = None
) -> list[SeriesPoint]:
    """Usage over time, by tenant; `step` is a multiple of a minute. Steps without use are left
    out."""
    raise NotImplementedError


def throttles(since: datetime, until: datetime, tenant: str | None = None) -> list[ThrottleCount]:
    """How often which limit refused whom, most first."""
    raise NotImplementedError


def latest_samples(at: datetime | None = None, max_age_s: float = 5.0) -> list[dict[str, Any]]:
    """The live state of each gateway heard of within `max_age_s`; shape: docs/architecture.md."""
    raise NotImplementedError


def sample_series(
    since: datetime, until: datetime | None = None, step: timedelta = timedelta(seconds=5)
) -> list[DebtPoint]:
    """Debt over time from the samples, at most one a step and gateway, oldest first."""
    raise NotImplementedError


def recent_records(tenant: str | None = None, limit: int = 50) -> list[UsageRecord]:
    """The newest records, newest first."""
    raise NotImplementedError


def export_records(
    tenant: str | None = None, since: datetime | None = None, until: datetime | None = None
) -> Iterator[UsageRecord]:
    """All records of the range, oldest first, streamed: memory does not grow with their number."""
    raise NotImplementedError
