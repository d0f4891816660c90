"""Celery's part: roll-ups and retention. Each task can run at any time, twice, or after a pause."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from celery import shared_task
from django.db.models import Min, Model

from metering.models import BudgetWindow, GatewaySample, TouchedMinute, UsageMinute, UsageRow
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
def purge_samples(keep_minutes: float = 60) -> int:
    """Forget live samples older than that; returns how many."""
    before = datetime.now(UTC) - timedelta(minutes=keep_minutes)
    return _delete_in_chunks(GatewaySample, "at", before)


@shared_task
def purge_records(keep_days: float = 35, keep_minutes_days: float = 400) -> int:
    """Forget raw records, then roll-ups and past budget windows, older than that; returns how many
    rows. A minute that is not rolled up yet keeps its records."""
    now = datetime.now(UTC).replace(second=0, microsecond=0)
    before = now - timedelta(days=keep_days)
    waiting = TouchedMinute.objects.aggregate(oldest=Min("minute"))["oldest"]
    deleted = _delete_in_chunks(UsageRow, "at", min(before, waiting or before))
    past = now - timedelta(days=keep_minutes_days)
    deleted += _delete_in_chunks(UsageMinute, "minute", past)
    return deleted + _delete_in_chunks(BudgetWindow, "window_end", past)


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
