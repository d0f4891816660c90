"""Cases that other gateways' users reported about windows, told by their numbers."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from metering.core.accounts import LocalAccounts
from tests.unit.metering.policies import NOON, admitted, hold, refused, sustained

SECOND = timedelta(seconds=1)


class Clock:
    """Accounts that are asked at a moment; the clock that is never set back goes along."""

    def __init__(self):
        self.accounts = LocalAccounts()
        self.began = None

    def ask(self, at, *budgets, cost=10.0):
        self.began = self.began or at
        now = (at - self.began).total_seconds()
        one = hold(*budgets, cost=cost)
        verdict = self.accounts.reserve(one, now, at)
        self.accounts.settle(one.request_id, 10, cost, now, at)
        return verdict

    def shown(self, at, budget):
        now = (at - self.began).total_seconds()
        return self.accounts.budgets((budget,), now, at)[0]


@pytest.fixture
def clock():
    return Clock()


@pytest.mark.parametrize(
    ("zone", "midnight"),
    [
        ("Asia/Tokyo", (2026, 6, 4)),
        ("Europe/Berlin", (2026, 3, 30)),  # the day before has 23 hours
        ("Europe/Berlin", (2026, 10, 26)),  # and here 25
        ("UTC", (2026, 3, 1)),
    ],
)
def test_d10_a_day_that_is_used_up_opens_again_at_local_midnight(clock, zone, midnight):
    daily = sustained(10, period="day", timezone=zone)
    end = datetime(*midnight, tzinfo=ZoneInfo(zone)).astimezone(UTC)
    morning = end - timedelta(hours=20)
    admitted(clock.ask(morning, daily))
    verdict = refused(clock.ask(end - SECOND, daily))
    assert (verdict.code, verdict.retry_after_s) == ("insufficient_quota", 1)
    admitted(clock.ask(end + SECOND, daily))


@pytest.mark.parametrize(
    ("period", "last", "first"),
    [
        ("week", datetime(2026, 11, 29, 23, 59, 59), datetime(2026, 11, 30)),
        ("month", datetime(2026, 2, 28, 23, 59, 59), datetime(2026, 3, 1)),
        ("month", datetime(2028, 2, 29, 23, 59, 59), datetime(2028, 3, 1)),
    ],
)
def test_r12_a_period_may_be_longer_than_a_day(clock, period, last, first):
    budget = sustained(10, period=period)
    last, first = last.replace(tzinfo=UTC), first.replace(tzinfo=UTC)
    admitted(clock.ask(last - timedelta(days=5), budget))
    assert refused(clock.ask(last, budget)).retry_after_s == 1
    admitted(clock.ask(first, budget))


def test_r17_a_sustained_budget_fills_up_and_its_reset_stands_still(clock):
    budget = sustained(100)
    seen = []
    for minute in range(10):
        at = NOON + timedelta(minutes=5 * minute)
        admitted(clock.ask(at, budget))
        seen.append(clock.shown(at, budget))
    assert [each["remaining"] for each in seen] == list(range(90, -10, -10))
    assert {each["resets_at"] for each in seen} == {"2026-11-29T13:00:00Z"}
    refused(clock.ask(NOON + timedelta(minutes=59), budget))


def test_r18_a_budget_trips_by_what_was_admitted_with_no_pipeline_behind_it(clock):
    budget = sustained(1_000)
    verdicts = [clock.ask(NOON, budget) for _ in range(110)]
    for verdict in verdicts[:100]:
        admitted(verdict)
    for verdict in verdicts[100:]:
        refused(verdict)
    assert clock.shown(NOON, budget)["used"] == 1_000


def test_r19_whoever_was_refused_is_let_in_after_the_wait_it_was_told(clock):
    budget = sustained(10, period="minute")
    admitted(clock.ask(NOON, budget))
    wait_s = refused(clock.ask(NOON + 20 * SECOND, budget)).retry_after_s
    assert wait_s == 40
    refused(clock.ask(NOON + (20 + wait_s - 1) * SECOND, budget))
    admitted(clock.ask(NOON + (20 + wait_s) * SECOND, budget))


def test_r24_an_alert_is_about_its_own_budget_and_not_how_far_the_month_is(clock):
    month = sustained(100, period="month", on_exhausted="alert")
    middle = NOON.replace(day=15)
    assert admitted(clock.ask(middle, month, cost=0.4)).alerts == ()
    assert admitted(clock.ask(middle, month, cost=99.6)).alerts == ()
    assert admitted(clock.ask(middle, month, cost=0.1)).alerts == (month.account,)
