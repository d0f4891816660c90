"""Levels of roll-ups: built out of each other, again and again to the same, and purged by whole
days."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta

import pytest
from django.core.management import CommandError, call_command

from metering import store, tasks
from metering.core import sketch
from metering.counting import BY_TENANT, MODELS, SKETCHES, SUMS
from metering.models import TenantDay, TouchedMinute, UsageDay, UsageMinute, UsageQuarter
from metering.reading import Reading
from metering.rollup import roll_up_quarters
from tests import builders
from tests.integration.metering.records import NOON, ended, record

pytestmark = [pytest.mark.django_db, pytest.mark.store]
DAY = NOON.replace(hour=0, minute=0, second=0, microsecond=0)
KEYS = ("tenant", "application", "key", "model", "lane")


def save(*records):
    store.save([ended(one) for one in records], lambda account: None)


def roll_up():
    while tasks.roll_up() or tasks.roll_up_days():
        pass


def everything():
    return [
        list(
            model.objects.order_by("start", *KEYS).values(*SUMS, "start", "ends", *SKETCHES, *KEYS)
        )
        for model in MODELS.values()
    ]


@pytest.fixture
def day_of_records():
    """Every 7 minutes of a day a request, by two tenants with two keys each."""
    made = [
        record(
            at=DAY + timedelta(minutes=7 * n, seconds=n % 60),
            tenant=("alice", "bob")[n % 2],
            key=("k1", "k2")[n % 3 == 0],
            queue_ms=float(n),
            ttft_ms=10.0 + n,
            e2e_ms=100.0 + 3 * n,
            finish_reason=("stop", "length", "cancelled")[n % 3],
        )
        for n in range(200)
    ]
    save(*made)
    return made


def test_every_level_holds_the_same_sums(day_of_records):
    roll_up()
    for model in (*MODELS.values(), *BY_TENANT.values()):
        rows = list(model.objects.all())
        assert sum(row.requests for row in rows) == 200
        assert sum(row.cost for row in rows) == 200 * 50
        for end in ("stop", "length", "cancelled"):
            expected = sum(one.finish_reason == end for one in day_of_records)
            assert sum(row.ends.get(end, 0) for row in rows) == expected
    assert UsageDay.objects.count() == 4  # two tenants with two keys
    assert TenantDay.objects.count() == 2
    assert [model.objects.values("start").distinct().count() for model in MODELS.values()] == [
        200,
        93,
        24,
        1,
    ]


def test_counting_a_range_again_changes_nothing(day_of_records):
    roll_up()
    before = everything()
    call_command("usage", "rollup", "--since", DAY.isoformat(), "--until", NOON.isoformat())
    assert everything() == before
    assert not TouchedMinute.objects.exists()


def test_a_range_that_was_never_counted_is_counted_by_the_command(day_of_records, capsys):
    roll_up()
    before = everything()
    for model in MODELS.values():
        model.objects.all().delete()
    until = (DAY + timedelta(days=1)).isoformat()
    call_command("usage", "rollup", "--since", DAY.isoformat(), "--until", until)
    assert everything() == before
    assert "200 minutes counted again." in capsys.readouterr().out


def test_the_command_refuses_a_range_that_ends_before_it_begins():
    with pytest.raises(CommandError, match="--since is 2026-11-29T12:30:00"):
        call_command(
            "usage", "rollup", "--since", "2026-11-29T12:30:00", "--until", "2026-11-29T12:00:00"
        )


def test_a_late_record_is_in_every_level_after_the_next_roll_up(day_of_records):
    roll_up()
    save(record(at=DAY + timedelta(hours=3, minutes=2), tenant="alice", key="k1", cost=7.0))
    assert Reading(DAY, DAY + timedelta(days=1)).totals(())[()].cost == 200 * 50 + 7
    roll_up()
    for model in (*MODELS.values(), *BY_TENANT.values()):
        assert sum(row.cost for row in model.objects.all()) == 200 * 50 + 7


@pytest.mark.parametrize("steps", [1, 3])
def test_a_reading_is_right_at_every_moment_of_a_roll_up(day_of_records, steps):
    """Minutes counted but no quarter yet, some quarters but not all, and so on."""
    whole = {}
    for _ in range(4):
        found = Reading(DAY, DAY + timedelta(days=1)).totals(("tenant",), sketches=("queue_ms",))
        if tasks.roll_up() == 0:
            assert {name: total.requests for name, total in found.items()} == {
                ("alice",): 100,
                ("bob",): 100,
            }
            whole = {name: total.quantile("queue_ms", 0.95) for name, total in found.items()}
        roll_up_quarters(most=steps * 20)
    waits = sorted(one.queue_ms for one in day_of_records if one.tenant == "bob")
    assert whole["bob",] == pytest.approx(waits[94], rel=0.01)


def test_time_per_token_is_of_the_tokens_after_the_first():
    save(
        record(ttft_ms=100.0, e2e_ms=1_000.0, completion_tokens=91),
        record(ttft_ms=100.0, e2e_ms=100.0, completion_tokens=1),
        record(ttft_ms=None, e2e_ms=500.0, completion_tokens=50),
    )
    roll_up()
    row = UsageMinute.objects.get()
    assert bytes(row.tpot_ms) == sketch.Sketch.of({sketch.bucket(10.0): 1}).pack()


def test_money_is_that_of_the_prices_in_force_when_each_request_was_answered():
    builders.apply_policy()
    dearer = builders.policy()
    dearer["pools"][0]["price"] = {
        "currency": "EUR",
        "input_per_million": "1.5",
        "output_per_million": "3",
    }
    builders.apply_policy(dearer, "Euros now")
    fields = {"prompt_tokens": 1_000, "completion_tokens": 100, "tenant": "acme"}
    save(
        record(policy_revision=1, **fields),
        record(policy_revision=2, **fields),
        record(policy_revision=2, **fields),
        record(policy_revision=2, **{**fields, "model": "org/code-7b"}),  # has no price
        record(policy_revision=99, **fields),  # a revision that is not known
    )
    roll_up()
    for model in MODELS.values():
        totals = [row.money for row in model.objects.all() if row.money]
        assert totals == [{"USD": 280_000, "EUR": 2 * 1_800_000}]


def test_minutes_are_forgotten_by_whole_days_and_the_rest_stays(settings):
    now = datetime.now(UTC)
    settings.FAIRLANE_KEEP_MINUTES_DAYS = 9
    for days, hours in itertools.product((2, 4, 6), (0, 6)):
        save(record(at=now - timedelta(days=days, hours=hours)))
    roll_up()
    assert UsageMinute.objects.count() == 6
    settings.FAIRLANE_KEEP_MINUTES_DAYS = 3
    tasks.purge_minutes()
    assert UsageMinute.objects.count() == 2
    assert UsageQuarter.objects.count() == 6
    assert sum(day.requests for day in UsageDay.objects.all()) == 6


def test_what_is_older_than_minutes_is_counted_by_the_quarter_out_of_records(settings):
    settings.FAIRLANE_KEEP_MINUTES_DAYS = 3
    at = datetime.now(UTC).replace(minute=7) - timedelta(days=20)
    save(*[record(at=at + timedelta(minutes=n)) for n in range(3)])
    roll_up()
    assert not UsageMinute.objects.exists()
    assert UsageQuarter.objects.get().requests == 3
    save(record(at=at))
    roll_up()
    assert UsageDay.objects.get().requests == 4
    found = Reading(at + timedelta(minutes=2), at + timedelta(minutes=3)).totals(())
    assert found[()].requests == 4  # the quarter that it is in: there is nothing finer


def test_records_that_a_roll_up_waits_for_are_not_forgotten():
    at = datetime.now(UTC) - timedelta(days=40)
    save(record(at=at))
    tasks.roll_up()
    assert tasks.purge_records(keep_days=35) == 0
    tasks.roll_up_days()
    assert tasks.purge_records(keep_days=35) == 1
