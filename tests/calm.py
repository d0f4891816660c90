"""Where no hour, day, week or month turns while a test runs that takes the moment as it is."""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo

# Without summer time; the second row lies half an hour beside UTC's hours.
ZONES = (
    *("UTC", "Asia/Tokyo", "America/Phoenix"),
    *("Asia/Kolkata", "Australia/Darwin", "Pacific/Marquesas"),
)


def calm_zone() -> str:
    """Its next hour begins in half an hour or later, its next midnight even later than that."""

    def left_s(zone: str) -> float:
        there = datetime.now(ZoneInfo(zone))
        hour = 3600 - 60 * there.minute - there.second
        return min(hour, 3600 * (23 - there.hour) + hour - 1800)

    return max(ZONES, key=left_s)
