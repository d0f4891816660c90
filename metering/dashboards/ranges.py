"""The time ranges that a page offers, and the steps in which its charts are drawn."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta


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
        Range("15m", "15 min", timedelta(minutes=15), timedelta(minutes=1), 5),
        Range("1h", "1 h", timedelta(hours=1), timedelta(minutes=1), 5),
        Range("6h", "6 h", timedelta(hours=6), timedelta(minutes=5), 15),
        Range("24h", "24 h", timedelta(hours=24), timedelta(minutes=20), 30),
    )
}


def chosen(key: str | None, default: str = "1h") -> Range:
    return RANGES.get(key or default, RANGES[default])


def steps(since: datetime, until: datetime, step: timedelta) -> list[datetime]:
    """The start of each step that touches the range, on whole multiples since the epoch."""
    seconds = step.total_seconds()
    first = datetime.fromtimestamp(since.timestamp() // seconds * seconds, UTC)
    count = int(-(-(until - first).total_seconds() // seconds))
    return [first + step * place for place in range(max(count, 1))]


@dataclass(frozen=True, slots=True)
class Grid:
    """The steps of one range; turns points into full rows, one a name."""

    times: list[datetime]
    step: timedelta

    @classmethod
    def over(cls, since: datetime, until: datetime, step: timedelta) -> Grid:
        return cls(steps(since, until, step), step)

    def place(self, at: datetime) -> int | None:
        index = int((at - self.times[0]) // self.step)
        return index if 0 <= index < len(self.times) else None

    def sums(
        self, points: Iterable[tuple[datetime, str, float]], empty: float | None
    ) -> dict[str, list[float | None]]:
        """Points of one name and step add up; steps without a point hold `empty`."""
        rows: dict[str, list[float | None]] = {}
        for at, name, value in points:
            if (index := self.place(at)) is not None:
                row = rows.setdefault(name, [empty] * len(self.times))
                row[index] = (row[index] or 0.0) + value
        return rows
