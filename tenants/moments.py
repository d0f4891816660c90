"""Moments as people and programs write them in an address."""

from __future__ import annotations

from datetime import UTC, datetime

from django.utils.dateparse import parse_datetime
from django.utils.timezone import is_naive

YEARS = range(1970, 9999)  # with room on both sides to count back from it, in any zone


def read_moment(text: str) -> datetime | None:
    """UTC where it says no zone, midnight where it is only a date; None where it is neither."""
    try:
        found = parse_datetime(text)
    except ValueError:
        return None
    if found is None or found.year not in YEARS:
        return None
    return found.replace(tzinfo=UTC) if is_naive(found) else found.astimezone(UTC)
