"""Ranges made of roll-ups: every second once, in the longest slots that may be used."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo, available_timezones

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metering.core.cover import DAY, HOUR, LEVELS, MINUTE, QUARTER, RECORD, cover, stale_above

ZONES = ["UTC", "Asia/Tokyo", "America/New_York", "Asia/Kathmandu", "Australia/Lord_Howe"]
MINUTES = st.integers(0, 5 * 24 * 60)


def seconds(at: datetime) -> int:
    return int(at.timestamp())


@given(st.lists(MINUTES, min_size=2, max_size=6), st.sets(MINUTES), st.sets(MINUTES))
def test_every_second_is_in_one_piece_and_in_its_bucket(
    edges: list[int], waiting: set[int], later: set[int]
) -> None:
    edges = sorted(60 * edge for edge in edges)
    minutes = {60 * minute for minute in waiting}
    quarters = {60 * minute // QUARTER * QUARTER for minute in later}
    pieces = cover(edges, stale_above(minutes, quarters, minutes))
    spans = sorted((piece.since, piece.until, piece.bucket) for piece in pieces)
    at = edges[0]
    for since, until, bucket in spans:
        assert since == at < until
        assert edges[bucket] <= since
        assert until <= edges[bucket + 1]
        at = until
    assert at == (edges[-1] if edges[0] < edges[-1] else edges[0])
    for piece in pieces:
        behind = {RECORD: set(), MINUTE: minutes}.get(piece.level, minutes | quarters)
        assert not any(piece.since <= start < piece.until for start in behind)
        assert piece.since % max(piece.level, MINUTE) == piece.until % max(piece.level, MINUTE) == 0


@pytest.mark.parametrize("zone", ZONES)
def test_a_day_of_any_zone_is_made_of_hours_and_at_most_six_quarters(zone: str) -> None:
    """Over a year, with both changes of the clocks."""
    day = datetime(2026, 1, 1, tzinfo=ZoneInfo(zone))
    for _ in range(366):
        after = (day.replace(tzinfo=None) + timedelta(days=1)).replace(tzinfo=ZoneInfo(zone))
        pieces = cover([seconds(day), seconds(after)])
        quarters = [p for p in pieces if p.level == QUARTER]
        assert all(piece.level >= QUARTER for piece in pieces)
        assert sum((p.until - p.since) // QUARTER for p in quarters) <= 6
        day = after


def test_long_ranges_are_made_of_whole_days() -> None:
    since = seconds(datetime(2026, 11, 1, 0, 7, tzinfo=UTC))
    pieces = cover([since, since + 90 * DAY])
    assert {piece.level for piece in pieces} == set(LEVELS)
    assert sum((p.until - p.since) // p.level for p in pieces) < 89 + 2 * (23 + 3 + 14)


def test_what_waits_is_read_from_below() -> None:
    noon = seconds(datetime(2026, 11, 29, 12, tzinfo=UTC))
    stale = stale_above([noon + 60], [noon], [noon + 60])
    levels = {p.level: (p.until - p.since) // 60 for p in cover([noon, noon + HOUR], stale)}
    assert levels == {RECORD: 1, MINUTE: 13, QUARTER: 45}


def test_a_quarter_divides_the_offset_of_every_zone() -> None:
    for name in available_timezones():
        for month in (1, 7):
            offset = datetime(2026, month, 1, tzinfo=ZoneInfo(name)).utcoffset()
            assert offset is not None
            assert offset % timedelta(seconds=QUARTER) == timedelta(0), name
