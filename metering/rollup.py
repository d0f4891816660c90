"""Minutes of usage, counted by the database out of the raw rows.

1. A minute is always counted anew from its rows, never added to: counting twice changes nothing,
   and a late record is in.
2. The database does the counting, sketches too; what comes back grows with the number of groups and
   of distinct durations, not with the number of requests.
3. Only requests that were let in have durations worth a quantile: a refusal's are near zero.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import Case, Count, F, FloatField, Q, QuerySet, Sum, Value, When
from django.db.models.functions import Ceil, Ln

from metering.core import sketch
from metering.models import TouchedMinute, UsageMinute, UsageRow

GROUP = ("tenant", "application", "model", "lane")
SKETCHES = ("queue_ms", "ttft_ms", "e2e_ms")
SUMS = ("requests", "errors", "prompt_tokens", "cached_tokens", "completion_tokens", "cost")
REFUSED = Q(finish_reason__in=("throttled", "rejected"))
MINUTE = timedelta(minutes=1)

Group = tuple[str, ...]


@dataclass(slots=True)
class Counted:
    """One group's part of one minute."""

    sums: dict[str, float] = field(default_factory=dict)
    throttled: dict[str, int] = field(default_factory=dict)
    sketches: dict[str, dict[int, int]] = field(default_factory=lambda: defaultdict(dict))


def count_minute(
    minute: datetime, tenant: str | None = None, durations: bool = True
) -> Iterator[UsageMinute]:
    """The minute's groups as unsaved rows; five queries bounded by the minute, two without
    durations."""
    rows = UsageRow.objects.filter(at__gte=minute, at__lt=minute + MINUTE)
    if tenant is not None:
        rows = rows.filter(tenant=tenant)
    groups: dict[Group, Counted] = defaultdict(Counted)
    _count_sums(rows, groups)
    _count_refusals(rows, groups)
    for name in SKETCHES if durations else ():
        _count_durations(rows, name, groups)
    for group, counted in sorted(groups.items()):
        packed = {name: sketch.pack(counted.sketches[name]) for name in SKETCHES}
        yield UsageMinute(
            minute=minute,
            throttled=counted.throttled,
            **dict(zip(GROUP, group, strict=True)),
            **counted.sums,
            **packed,
        )


def _count_sums(rows: QuerySet[UsageRow], groups: dict[Group, Counted]) -> None:
    sums = rows.order_by().values_list(*GROUP)
    for *group, requests, errors, prompt, cached, completion, cost in sums.annotate(
        _1=Count("id"),
        _2=Count("id", filter=Q(status__gte=500)),
        _3=Sum("prompt_tokens"),
        _4=Sum("cached_tokens"),
        _5=Sum("completion_tokens"),
        _6=Sum("cost"),
    ):
        values = (requests, errors, prompt, cached, completion, cost)
        groups[tuple(group)].sums = dict(zip(SUMS, values, strict=True))


def _count_refusals(rows: QuerySet[UsageRow], groups: dict[Group, Counted]) -> None:
    refused = rows.filter(REFUSED).exclude(throttle_reason="").order_by()
    for *group, reason, count in refused.values_list(*GROUP, "throttle_reason").annotate(
        Count("id")
    ):
        groups[tuple(group)].throttled[reason] = count


def _count_durations(rows: QuerySet[UsageRow], name: str, groups: dict[Group, Counted]) -> None:
    number = Case(
        When(**{f"{name}__lt": sketch.LEAST_MS}, then=Value(0.0)),
        default=Ceil(Ln(F(name)) / Value(sketch.LOG_GAMMA)) - Value(float(sketch.OFFSET)),
        output_field=FloatField(),
    )
    measured = rows.exclude(REFUSED).exclude(**{name: None}).order_by()
    buckets = measured.annotate(bucket=number).values_list(*GROUP, "bucket")
    for *group, bucket, count in buckets.annotate(Count("id")):
        groups[tuple(group)].sketches[name][int(bucket)] = count


def roll_up_minute(minute: datetime) -> int:
    """Count one minute and clear the marks that are there now; the number of its groups.

    The marks are locked before the rows are counted: two roll-ups of one minute go one after the
    other, and rows that come later have their own, later mark.
    """
    with transaction.atomic():
        marks = TouchedMinute.objects.filter(minute=minute).select_for_update()
        seen = list(marks.values_list("id", flat=True))
        counted = _not_less_than_known(minute, count_minute(minute))
        UsageMinute.objects.bulk_create(
            counted,
            batch_size=500,
            update_conflicts=True,
            unique_fields=["minute", *GROUP],
            update_fields=[*SUMS, "throttled", *SKETCHES],
        )
        _delete_marks(seen)
    return len(counted)


def _not_less_than_known(minute: datetime, counted: Iterator[UsageMinute]) -> list[UsageMinute]:
    """Rows are only ever added, so fewer than before means that old ones were purged meanwhile."""
    rows = UsageMinute.objects.filter(minute=minute).values_list(*GROUP, "requests")
    known = {tuple(group): requests for *group, requests in rows}
    return [
        row
        for row in counted
        if row.requests >= known.get((row.tenant, row.application, row.model, row.lane), 0)
    ]


def _delete_marks(ids: list[int]) -> None:
    for start in range(0, len(ids), 500):
        TouchedMinute.objects.filter(id__in=ids[start : start + 500]).delete()
