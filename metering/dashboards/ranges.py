"""The range of time that a page is about, as its address says it, and the steps of its charts.

1. An address says the whole range: `range=1h` up to now, or `since` and `until`. Times without an
   offset are the viewer's own; a page answers them with the address that has UTC (`canonical`).
2. A range that ends now is widened to whole steps, so that its sums are made of long roll-ups.
3. What an address says wrongly is told in `problem`, and the page shows its usual range.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta, tzinfo
from itertools import pairwise
from urllib.parse import urlencode

from django.http import QueryDict
from django.utils.timezone import get_current_timezone

from metering.rollup import floor
from tenants.moments import read_moment

MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
STEPS = (MINUTE, 5 * MINUTE, 15 * MINUTE, HOUR, 2 * HOUR, 6 * HOUR, DAY)
MOST_STEPS = 120
LONGEST = 400 * DAY
EXAMPLE = "2026-11-29T14:00"
OVER = "In the minutes that are over"
RUNNING = "The one that still runs is drawn once it is."


@dataclass(frozen=True, slots=True)
class Range:
    key: str
    label: str
    length: timedelta
    step: timedelta
    refresh_s: int


RANGES: Mapping[str, Range] = {
    each.key: each
    for each in (
        Range("15m", "15 min", 15 * MINUTE, MINUTE, 5),
        Range("1h", "1 h", HOUR, MINUTE, 5),
        Range("6h", "6 h", 6 * HOUR, 5 * MINUTE, 15),
        Range("24h", "24 h", DAY, 15 * MINUTE, 30),
        Range("7d", "7 d", 7 * DAY, 2 * HOUR, 60),
        Range("30d", "30 d", 30 * DAY, DAY, 300),
        Range("90d", "90 d", 90 * DAY, DAY, 300),
    )
}


@dataclass(frozen=True, slots=True)
class Span:
    """`since <= t < until`; `key` names the preset, and is empty for a range of two times."""

    key: str
    label: str
    since: datetime
    until: datetime
    step: timedelta
    refresh_s: int = 0  # 0: nothing will change
    problem: str = ""

    @property
    def live(self) -> bool:
        return self.refresh_s > 0

    @property
    def whole(self) -> datetime:
        """Up to here no minute is still running."""
        return max(self.since + MINUTE, floor(self.until, 60)) if self.live else self.until

    @property
    def edges(self) -> list[datetime]:
        """Of the steps, on whole multiples since the epoch; the first and the last may be cut."""
        edges, at = [self.since], floor(self.since, int(self.step.total_seconds())) + self.step
        while at < self.whole:
            edges.append(at)
            at += self.step
        return [*edges, self.whole]

    @property
    def minutes(self) -> list[float]:
        """The length of each step."""
        return [(b - a) / MINUTE for a, b in pairwise(self.edges)]

    @property
    def query(self) -> str:
        return f"range={self.key}" if self.key else self.fixed

    @property
    def fixed(self) -> str:
        """The address of just these times, for a link that stays what it is."""
        return urlencode({"since": stamp(self.since), "until": stamp(self.until)})


def stamp(at: datetime) -> str:
    text = at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return text.replace(":00Z", "Z")


def chosen(asked: Mapping[str, str], at: datetime, default: str = "1h") -> Span:
    """What the address asks for."""
    if asked.get("since") or asked.get("until"):
        try:
            return between(*moments(asked, at), at)
        except ValueError as error:
            return replace(preset(default, at), problem=str(error))
    key = asked.get("range") or default
    if key not in RANGES:
        known = ", ".join(RANGES)
        return replace(preset(default, at), problem=f"range is “{key[:40]}”; it takes {known}.")
    return preset(key, at)


def preset(key: str, at: datetime) -> Span:
    it = RANGES[key]
    since = floor(at - it.length, int(it.step.total_seconds()))
    return Span(key, f"the last {it.label}", since, at, it.step, it.refresh_s)


def between(since: datetime, until: datetime, at: datetime) -> Span:
    """Raises: ValueError, which says what is wrong."""
    if since >= until:
        raise ValueError(f"since is {stamp(since)}; it takes a time before until, {stamp(until)}.")
    if until - since > LONGEST:
        raise ValueError(f"since is {stamp(since)}; it takes a time at most 400 days before until.")
    length = until - since
    step = next((each for each in STEPS if length / each <= MOST_STEPS), DAY)
    zone = get_current_timezone()
    first, last = (each.astimezone(zone).strftime("%d %b %H:%M") for each in (since, until))
    return Span("", f"the range {first} – {last}", since, until, step, 30 if until > at else 0)


def months(at: datetime) -> list[tuple[str, str]]:
    """This month and the one before on the viewer's clock: label and address."""
    first = at.astimezone(get_current_timezone()).replace(
        day=1, hour=0, minute=0, second=0, microsecond=0
    )
    before = (first - DAY).replace(day=1)  # by the clock on the wall: midnight again
    found = (("this month", first, at), ("last month", before, first))
    return [
        (label, urlencode({"since": stamp(since), "until": stamp(until)}))
        for label, since, until in found
    ]


def moments(asked: Mapping[str, str], at: datetime) -> tuple[datetime, datetime]:
    """Raises: ValueError, which names the field, its value and what it takes."""
    until = moment("until", asked["until"]) if asked.get("until") else at
    since = moment("since", asked["since"]) if asked.get("since") else until - HOUR
    return since, until


def moment(field: str, text: str, zone: tzinfo | None = None) -> datetime:
    """To the minute. Raises: ValueError."""
    at = read_moment(text, zone or get_current_timezone())
    if at is None:
        raise ValueError(f"{field} is “{text[:40]}”; it takes a time such as {EXAMPLE}.")
    return floor(at, 60)


def canonical(asked: Mapping[str, str]) -> dict[str, str]:
    """`since` and `until` with UTC, where the address has them without an offset."""
    found = {}
    for field in ("since", "until"):
        try:
            if datetime.fromisoformat(asked.get(field) or "").tzinfo is None:
                found[field] = stamp(moment(field, asked[field]))
        except ValueError:
            continue
    return found


def replaced(asked: QueryDict, changed: Mapping[str, str]) -> str:
    """The address's own query, with some of it changed."""
    query = asked.copy()
    for name, value in changed.items():
        query[name] = value
    return query.urlencode()


@dataclass(frozen=True, slots=True)
class Grid:
    """The steps of one range; turns amounts by step into full rows, one a name."""

    times: list[datetime]
    minutes: list[float]

    @classmethod
    def of(cls, span: Span) -> Grid:
        return cls(span.edges[:-1], span.minutes)

    def place(self, at: datetime) -> int:
        """Of the step that a moment is in."""
        return max(0, bisect_right(self.times, at) - 1)

    def rows(
        self, points: Iterable[tuple[int, str, float | None]], empty: float | None
    ) -> dict[str, list[float | None]]:
        """Amounts of one name and step add up; steps without one hold `empty`."""
        rows: dict[str, list[float | None]] = {}
        for place, name, value in points:
            row = rows.setdefault(name, [empty] * len(self.times))
            there = row[place]
            row[place] = value if there is None or value is None else there + value
        return rows

    def a_minute(self, rows: Mapping[str, list[float | None]]) -> dict[str, list[float | None]]:
        return {
            name: [
                None if value is None else value / minutes
                for value, minutes in zip(row, self.minutes, strict=True)
            ]
            for name, row in rows.items()
        }
