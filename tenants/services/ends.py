"""When keys, their old secrets, and tokens end: so long from now."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.utils import timezone

from tenants.core.issue import refused, short

LONGEST_DAYS = 3650
DEFAULT_DAYS = 365  # of a token
LONGEST_GRACE_HOURS = 24 * 90


def in_days(days: float) -> datetime:
    """Raises PolicyRefused unless it is more than 0, and no more than LONGEST_DAYS."""
    return _after(days, "expires_days", timedelta(days=1), LONGEST_DAYS, "more than 0")


def in_days_or_never(days: float | None) -> datetime | None:
    return None if days is None else in_days(days)


def grace_of(hours: float) -> datetime:
    """Raises PolicyRefused unless it is 0 up to LONGEST_GRACE_HOURS."""
    if hours == 0:
        return timezone.now()
    return _after(hours, "grace_hours", timedelta(hours=1), LONGEST_GRACE_HOURS, "0")


def _after(amount: float, field: str, unit: timedelta, most: float, lowest: str) -> datetime:
    if isinstance(amount, bool) or not 0 < amount <= most:  # NaN is refused here as well
        message = f"{field} is {short(amount)}; it takes {lowest} up to {most:g}"
        raise refused(field, amount, message)
    return timezone.now() + amount * unit
