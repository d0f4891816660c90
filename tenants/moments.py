"""Moments as people and programs write them in an address."""

from __future__ import annotations

from datetime import UTC, datetime, tzinfo

from django.utils.dateparse import parse_datetime
from django.utils.timezone import is_naive

YEARS = range(1970, 9999)  # with room on both sides to count back from it, in any zone


def read_moment(text: str, zone: tzinfo = UTC) -> datetime | None:
    """In `zone` where it says none, midnight where it is only a date; None where it is neither."""
    try:
        found = parse_datetime(text)
    except ValueError:
        return None
    if found is None or found.year not in YEARS:
        return None
    return (found.replace(tzinfo=zone) if is_naive(found) else found).astimezone(UTC)
