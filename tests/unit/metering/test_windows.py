"""Calendar windows: where they begin in each zone, over clock changes and month ends."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo, available_timezones

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metering.core.windows import longest, window_at

ZONES = sorted(available_timezones())
PERIODS = ("minute", "hour", "day", "week", "month", "1d", "2d", "30d", "90d", "366d")


def local(zone: str, *parts: int, fold: int = 0) -> datetime:
    return datetime(*parts, tzinfo=ZoneInfo(zone), fold=fold).astimezone(UTC)


@pytest.mark.parametrize("zone", ["Asia/Tokyo", "UTC", "Europe/Berlin", "America/New_York"])
def test_a_day_ends_at_local_midnight(zone):
    evening = local(zone, 2026, 6, 3, 23, 59, 59)
    after = local(zone, 2026, 6, 4, 0, 0, 1)
    today, tomorrow = window_at("day", zone, evening), window_at("day", zone, after)
    assert today.end == local(zone, 2026, 6, 4)
    assert tomorrow.start == today.end
    assert tomorrow.end - tomorrow.start == timedelta(hours=24)


@pytest.mark.parametrize(
    ("zone", "day", "hours"),
    [
        ("Europe/Berlin", (2026, 3, 29), 23),
        ("Europe/Berlin", (2026, 10, 25), 25),
        ("America/New_York", (2026, 3, 8), 23),
        ("America/New_York", (2026, 11, 1), 25),
        ("Asia/Tokyo", (2026, 3, 29), 24),
        ("Australia/Lord_Howe", (2026, 4, 5), 24.5),
    ],
)
def test_the_night_of_a_clock_change_is_shorter_or_longer(zone, day, hours):
    window = window_at("day", zone, local(zone, *day, 12))
    assert (window.start, window.end - window.start) == (local(zone, *day), timedelta(hours=hours))


def test_both_hours_that_a_clock_shows_twice_are_windows_of_their_own():
    first = window_at("hour", "Europe/Berlin", local("Europe/Berlin", 2026, 10, 25, 2, 30))
    second = window_at("hour", "Europe/Berlin", local("Europe/Berlin", 2026, 10, 25, 2, 30, fold=1))
    assert first.end == second.start
    assert second.end - second.start == timedelta(hours=1)


def test_hours_begin_when_the_local_clock_is_full():
    window = window_at("hour", "Asia/Kolkata", datetime(2026, 1, 1, 10, 45, tzinfo=UTC))
    assert window.start == datetime(2026, 1, 1, 10, 30, tzinfo=UTC)  # 16:00 there


@pytest.mark.parametrize(
    ("at", "start", "end"),
    [
        ((2026, 1, 31, 23), (2026, 1, 1), (2026, 2, 1)),
        ((2026, 2, 28, 23), (2026, 2, 1), (2026, 3, 1)),
        ((2028, 2, 29, 23), (2028, 2, 1), (2028, 3, 1)),
        ((2026, 12, 31, 23), (2026, 12, 1), (2027, 1, 1)),
        ((2026, 4, 30, 23), (2026, 4, 1), (2026, 5, 1)),
    ],
)
def test_a_month_has_its_own_length(at, start, end):
    for zone in ("UTC", "Asia/Tokyo", "Europe/Berlin"):
        window = window_at("month", zone, local(zone, *at))
        assert (window.start, window.end) == (local(zone, *start), local(zone, *end))


def test_a_week_begins_on_monday():
    window = window_at("week", "UTC", datetime(2026, 11, 29, 18, tzinfo=UTC))  # a Sunday
    assert (window.start, window.end) == (
        datetime(2026, 11, 23, tzinfo=UTC),
        datetime(2026, 11, 30, tzinfo=UTC),
    )


@pytest.mark.parametrize("zone", ["UTC", "Asia/Tokyo", "Europe/Berlin"])
def test_ninety_days_are_counted_from_one_date_at_local_midnights(zone):
    """Cases R12. 2026-11-29 is day 20 786 since 1970-01-01; 20 790 is the next multiple of 90."""
    window = window_at("90d", zone, local(zone, 2026, 11, 29, 18))
    assert (window.start, window.end) == (local(zone, 2026, 9, 4), local(zone, 2026, 12, 3))
    assert window_at("90d", zone, window.end).start == window.end


def test_a_period_of_one_day_is_a_day():
    for zone in ("Asia/Tokyo", "Europe/Berlin"):
        at = local(zone, 2026, 10, 25, 12)
        assert window_at("1d", zone, at) == window_at("day", zone, at)


@given(
    st.sampled_from(PERIODS),
    st.sampled_from(ZONES),
    st.datetimes(datetime(2000, 1, 1), datetime(2037, 12, 1), timezones=st.just(UTC)),
)
def test_no_window_is_longer_than_is_said(period, zone, at):
    window = window_at(period, zone, at)
    assert window.end - window.start <= longest(period)


def test_a_day_that_a_zone_left_out_is_no_window():
    """Samoa went from 29 December 2011 straight to the 31st."""
    before = window_at("day", "Pacific/Apia", local("Pacific/Apia", 2011, 12, 29, 23))
    after = window_at("day", "Pacific/Apia", local("Pacific/Apia", 2011, 12, 31, 1))
    assert before.end == after.start


def test_clocks_that_go_back_over_midnight_do_not_reopen_the_day():
    """St John's went from 00:01 back to 23:01 of the day before in 2010."""
    zone = "America/St_Johns"
    again = local(zone, 2010, 11, 6, 23, 30, fold=1)
    assert again in window_at("day", zone, again)
    assert window_at("day", zone, again).start == local(zone, 2010, 11, 7)


@given(
    st.sampled_from(PERIODS),
    st.sampled_from(ZONES),
    st.datetimes(datetime(2000, 1, 1), datetime(2037, 12, 1), timezones=st.just(UTC)),
)
def test_the_windows_of_a_year_part_time_without_gap_or_overlap(period, zone, at):
    window = window_at(period, zone, at)
    just_before_its_end = window.end - timedelta(microseconds=1)
    assert at in window
    assert window_at(period, zone, window.start) == window
    assert window_at(period, zone, just_before_its_end) == window
    assert window_at(period, zone, window.end).start == window.end


@given(
    st.sampled_from(("Europe/Berlin", "America/New_York", "Asia/Tokyo", "Australia/Lord_Howe")),
    st.sampled_from(PERIODS),
    st.integers(-200, 200),
    st.sampled_from([(2026, 3, 29), (2026, 10, 25), (2026, 3, 8), (2026, 11, 1), (2026, 4, 5)]),
)
def test_the_windows_round_clock_changes_part_time(zone, period, quarters, day):
    at = datetime(*day, tzinfo=UTC) + timedelta(minutes=15) * quarters
    window = window_at(period, zone, at)
    assert at in window
    assert window_at(period, zone, window.end).start == window.end
