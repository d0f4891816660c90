"""Celery's part: roll-ups, retention, and the check of the counters.

Each task can run at any time, twice, or after a pause.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from celery import shared_task
from django.conf import settings
from django.db.models import Min, Model

from metering import verify
from metering.models import (
    Alert,
    BudgetWindow,
    Correction,
    GatewayCheck,
    GatewaySample,
    TouchedMinute,
    UsageMinute,
    UsageRow,
)
from metering.rollup import roll_up_minute

MINUTES_A_RUN = 500
ROWS_A_DELETE = 5_000


@shared_task
def roll_up() -> int:
    """Count every minute that got records since it was last counted; after a pause the oldest
    first, some hundred a run. Returns how many minutes."""
    touched = TouchedMinute.objects.order_by("minute").values_list("minute", flat=True).distinct()
    minutes = list(touched[:MINUTES_A_RUN])
    for minute in minutes:
        roll_up_minute(minute)
    return len(minutes)


@shared_task
def check_ledger(whole: bool = False) -> int:
    """Hold every counter against the ledger and alert where they differ; returns how many do.
    Not `whole`: short and recent windows only (`ledger_check.check`)."""
    at = datetime.now(UTC)
    return verify.raise_alerts(verify.stored(at, whole), whole, at)


@shared_task
def purge_samples(keep_minutes: float | None = None) -> int:
    """Forget live samples older than that; returns how many."""
    keep = settings.FAIRLANE_KEEP_SAMPLES_MINUTES if keep_minutes is None else keep_minutes
    before = datetime.now(UTC) - timedelta(minutes=keep)
    _delete_in_chunks(GatewayCheck, "at", before)
    return _delete_in_chunks(GatewaySample, "at", before)


@shared_task
def purge_records(keep_days: float | None = None, keep_rollups_days: float | None = None) -> int:
    """Forget raw records and corrections, then roll-ups, past budget windows and settled alerts,
    older than that; returns how many rows. A minute that is not rolled up yet keeps its records."""
    now = datetime.now(UTC).replace(second=0, microsecond=0)
    keep = settings.FAIRLANE_KEEP_RECORDS_DAYS if keep_days is None else keep_days
    before = now - timedelta(days=keep)
    waiting = TouchedMinute.objects.aggregate(oldest=Min("minute"))["oldest"]
    deleted = _delete_in_chunks(UsageRow, "at", min(before, waiting or before))
    deleted += _delete_in_chunks(Correction, "at", before)
    keep = settings.FAIRLANE_KEEP_ROLLUPS_DAYS if keep_rollups_days is None else keep_rollups_days
    past = now - timedelta(days=keep)
    for model, moment in (
        (UsageMinute, "minute"),
        (BudgetWindow, "window_end"),
        (Alert, "resolved_at"),
    ):
        deleted += _delete_in_chunks(model, moment, past)
    return deleted


def _delete_in_chunks(model: type[Model], moment: str, before: datetime) -> int:
    """Chosen in the database: no row comes here, and no lock is held for long."""
    rows = model._default_manager.filter(**{f"{moment}__lt": before})
    deleted = 0
    while True:
        chunk = rows.order_by(moment).values("pk")[:ROWS_A_DELETE]
        count, _ = model._default_manager.filter(pk__in=chunk).delete()
        deleted += count
        if count < ROWS_A_DELETE:
            return deleted
