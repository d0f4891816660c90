"""Celery's part: roll-ups, retention, the check of the counters, and alerts.

Each task can run at any time, twice, or after a pause. One at a time is what it is for: two at
once would do the same work.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from celery import shared_task
from django.conf import settings
from django.db.models import Min, Model

from metering import history, partitions, verify
from metering.alerts.delivery import send_due
from metering.alerts.notices import queue
from metering.alerts.watch import watch
from metering.alone import alone
from metering.models import (
    Alert,
    AlertDelivery,
    BudgetWindow,
    Correction,
    GatewayCheck,
    GatewaySample,
    LiveDay,
    LiveHour,
    LiveMinute,
    LiveQuarter,
    TenantDay,
    TenantHour,
    TouchedMinute,
    TouchedQuarter,
    UsageDay,
    UsageHour,
    UsageMinute,
    UsageQuarter,
    UsageRow,
)
from metering.rollup import oldest_minute, roll_up_minutes, roll_up_quarters

ROWS_A_DELETE = 5_000
KEPT_AS_ROLLUPS: dict[type[Model], str] = {
    UsageQuarter: "start",
    UsageHour: "start",
    UsageDay: "start",
    TenantHour: "start",
    TenantDay: "start",
    LiveQuarter: "start",
    LiveHour: "start",
    LiveDay: "start",
    BudgetWindow: "window_end",
    Alert: "resolved_at",
    AlertDelivery: "created_at",
}


@shared_task
@alone
def roll_up() -> int:
    """Count every minute that got records since it was last counted (`rollup.roll_up_minutes`)."""
    return roll_up_minutes()


@shared_task
@alone
def roll_up_days() -> int:
    """Count the quarters, hours and days of the minutes that were counted since the last time."""
    return roll_up_quarters()


@shared_task
@alone
def check_ledger(whole: bool = False) -> int:
    """Hold every counter against the ledger and alert where they differ; returns how many do.
    Not `whole`: short and recent windows only (`ledger_check.check`)."""
    at = datetime.now(UTC)
    return verify.raise_alerts(verify.stored(at, whole), whole, at)


@shared_task
@alone
def watch_alerts() -> int:
    """Raise and resolve alerts by the rules in force, and queue who is told of them (also of those
    that were raised elsewhere); returns how many conditions hold."""
    at = datetime.now(UTC)
    holding = watch(at)
    queue(at)
    return holding


@shared_task
@alone
def send_alerts() -> int:
    """Send the alert messages that are due; returns how many."""
    return send_due(datetime.now(UTC))


@shared_task
@alone
def purge_samples(keep_minutes: float | None = None) -> int:
    """Forget live samples older than that; returns how many."""
    keep = settings.FAIRLANE_KEEP_SAMPLES_MINUTES if keep_minutes is None else keep_minutes
    before = datetime.now(UTC) - timedelta(minutes=keep)
    _delete_in_chunks(GatewayCheck, "at", before)
    return _delete_in_chunks(GatewaySample, "at", before)


@shared_task
@alone
def purge_records(keep_days: float | None = None, keep_rollups_days: float | None = None) -> int:
    """Forget raw records and corrections, then roll-ups, past budget windows and settled alerts,
    older than that; returns how many rows. What is not rolled up yet keeps its records; on
    PostgreSQL records go by whole days, or months (`metering.partitions`)."""
    now = datetime.now(UTC).replace(second=0, microsecond=0)
    keep = settings.FAIRLANE_KEEP_RECORDS_DAYS if keep_days is None else keep_days
    before = now - timedelta(days=keep)
    counted = min(before, _oldest_waiting(before))
    deleted = partitions.forget(counted)
    deleted += _delete_in_chunks(UsageRow, "at", partitions.whole(counted))
    deleted += _delete_in_chunks(Correction, "at", before)
    keep = settings.FAIRLANE_KEEP_ROLLUPS_DAYS if keep_rollups_days is None else keep_rollups_days
    past = now - timedelta(days=keep)
    for model, moment in KEPT_AS_ROLLUPS.items():
        deleted += _delete_in_chunks(model, moment, past)
    return deleted


@shared_task
@alone
def make_partitions() -> int:
    """Of usage records, for the days to come (`metering.partitions`); returns how many."""
    return partitions.make_ahead(datetime.now(UTC))


@shared_task
@alone
def note_live() -> int:
    """Add the gateways' samples up to minutes and longer; returns how many minutes."""
    return history.note(datetime.now(UTC))


@shared_task
@alone
def purge_minutes() -> int:
    """Forget minutes, of usage and of live state, that are no longer read; returns how many."""
    before = oldest_minute(datetime.now(UTC))
    deleted = _delete_in_chunks(UsageMinute, "start", before)
    return deleted + _delete_in_chunks(LiveMinute, "start", before)


def _oldest_waiting(default: datetime) -> datetime:
    """The first moment of what is not rolled up yet."""
    minute = TouchedMinute.objects.aggregate(oldest=Min("minute"))["oldest"] or default
    quarter = TouchedQuarter.objects.aggregate(oldest=Min("quarter"))["oldest"] or default
    return min(minute, quarter)


def _delete_in_chunks(model: type[Model], moment: str, before: datetime) -> int:
    """Chosen in the database: no row comes here, and no lock is held for long."""
    rows = model._default_manager.filter(**{f"{moment}__lt": before})
    deleted = 0
    while True:
        chunk = rows.order_by(moment).values("pk")[:ROWS_A_DELETE]
        count, _ = rows.filter(pk__in=chunk).delete()  # told twice: other partitions are left alone
        deleted += count
        if count < ROWS_A_DELETE:
            return deleted
