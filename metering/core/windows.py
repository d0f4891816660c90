"""Calendar windows of sustained budgets, in a time zone, as instants.

1. The windows of one (period, zone) part all of time: every instant is in exactly one, and
   `window_at` gives the same one for each instant in it.
2. Only instants are compared. Local time serves to find where a day, week or month begins; a day
   may last 23, 24 or 25 hours.
3. Minutes and hours keep their length over a clock change. Weeks begin on Monday (ISO 8601).
4. Periods of so many days are counted from 1 January 1970, a date of the zone's own calendar: where
   one begins depends on nothing that anybody did.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

from tenants.core.periods import days_of

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Window:
    """`start <= instant < end`, both aware UTC."""

    start: datetime
    end: datetime

    def __contains__(self, at: datetime) -> bool:
        return self.start <= at < self.end


def window_at(period: str, timezone: str, at: datetime) -> Window:
    """The window that the instant `at` (aware) falls in. `period` is as a budget's.

    Raises:
        ValueError: `period` is none.
        ZoneInfoNotFoundError: `timezone` is not an IANA zone.
    """
    zone, at = ZoneInfo(timezone), at.astimezone(UTC)  # one zone's own times compare without fold
    if period == "minute":
        return _even(at, MINUTE, timedelta())
    if period == "hour":
        return _even(at, HOUR, _hour_shift(zone, at))
    return _calendar(period, zone, at)


def _even(at: datetime, length: timedelta, shift: timedelta) -> Window:
    start = at - (at + shift - EPOCH) % length
    return Window(start, start + length)


def _hour_shift(zone: ZoneInfo, at: datetime) -> timedelta:
    """How far local hours lie from UTC's, as on the year's first day: where a clock change moves
    by half an hour (Lord Howe), hours must not overlap."""
    offset = datetime(at.astimezone(zone).year, 1, 1, 12, tzinfo=zone).utcoffset()
    return (offset or timedelta()) % HOUR


def longest(period: str) -> timedelta:
    """No window of the period is longer."""
    if period in ("minute", "hour"):
        return MINUTE if period == "minute" else HOUR
    days = days_of(period) or {"day": 1, "week": 7, "month": 31}[period]
    return days * DAY + 3 * HOUR  # by so much a clock may be set back in it (Casey)


def _calendar(period: str, zone: ZoneInfo, at: datetime) -> Window:
    first = _first_day(period, at.astimezone(zone).date())
    following = _next_first_day(period, first)
    window = Window(_midnight(first, zone), _midnight(following, zone))
    if at >= window.end:  # clocks went back over midnight: this local date has already ended
        return Window(window.end, _midnight(_next_first_day(period, following), zone))
    return window


def _first_day(period: str, day: date) -> date:
    if days := days_of(period):
        return day - DAY * ((day - EPOCH.date()).days % days)
    if period == "week":
        return day - DAY * day.weekday()
    return day.replace(day=1) if period == "month" else day


def _next_first_day(period: str, first: date) -> date:
    if days := days_of(period):
        return first + days * DAY
    match period:
        case "day":
            return first + DAY
        case "week":
            return first + 7 * DAY
        case "month":
            return (first + 31 * DAY).replace(day=1)
    raise ValueError(f"{period!r} is no period of days")


def _midnight(day: date, zone: ZoneInfo) -> datetime:
    """Where the clock skips midnight this is the moment it skips; where it shows midnight twice,
    the first."""
    return datetime(day.year, day.month, day.day, tzinfo=zone).astimezone(UTC)
