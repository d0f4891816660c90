"""Roll-ups and what pages read from them, with Alice's tenant and Bob's."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from metering import rollup, selectors, services, store, tasks
from metering.counting import MODELS
from metering.models import (
    GatewaySample,
    TouchedMinute,
    UsageDay,
    UsageHour,
    UsageMinute,
    UsageQuarter,
    UsageRow,
)
from metering.reading import Reading
from tests.integration.metering.records import NOON, ended, record

pytestmark = [pytest.mark.django_db, pytest.mark.store]
HOUR = (NOON - timedelta(minutes=30), NOON + timedelta(minutes=30))


def save(*records):
    store.save([ended(one) for one in records], lambda account: None)


@pytest.fixture(params=["rolled up", "not yet rolled up", "late records after a roll-up"])
def traffic(request):
    """Twice as much for Alice as for Bob; one of Bob's was throttled, one broke."""
    alice = [
        record(queue_ms=10.0 * n, ttft_ms=100.0 + n, e2e_ms=500.0, cost=50.0) for n in range(10)
    ]
    bob = [record(tenant="bob", application="", queue_ms=4.0, cost=60.0) for _ in range(3)]
    bob.append(
        record(
            tenant="bob",
            application="",
            prompt_tokens=0,
            completion_tokens=0,
            cost=0.0,
            status=429,
            finish_reason="throttled",
            throttle_reason="requests_per_minute",
        )
    )
    bob.append(record(tenant="bob", application="", cost=70.0, status=502, finish_reason="error"))
    if request.param == "late records after a roll-up":
        save(*alice[:4])
        tasks.roll_up()
        save(*alice[4:], *bob)
    else:
        save(*alice, *bob)
        if request.param == "rolled up":
            tasks.roll_up()


def test_an_overview_shows_each_tenants_part(traffic):
    alice, bob = selectors.breakdown("tenant", *HOUR)
    assert (alice.name, bob.name) == ("alice", "bob")
    assert (alice.requests, alice.tokens, alice.cost) == (10, 300, 500)
    assert (bob.requests, bob.tokens, bob.cost) == (5, 120, 250)
    assert (bob.throttled, bob.errors, bob.throttle_rate) == (1, 1, 0.2)
    assert alice.cost_share == pytest.approx(2 / 3)
    assert alice.token_share == pytest.approx(300 / 420)
    assert alice.queue_p95_ms == pytest.approx(80, rel=0.02)  # the 9th of 0, 10 … 90
    assert alice.ttft_p95_ms == pytest.approx(108, rel=0.02)
    assert alice.e2e_p95_ms == pytest.approx(500, rel=0.02)
    assert bob.ttft_p95_ms is None


def test_a_tenant_sees_its_own_applications_only(traffic):
    shares = selectors.breakdown("application", *HOUR, tenant="alice")
    assert [(share.name, share.requests, share.cost_share) for share in shares] == [("bot", 10, 1)]


def test_throttles_are_told_by_limit(traffic):
    found = Reading(*HOUR).totals(("tenant",), tallies=("throttled",))
    told = {name: dict(total.throttled) for (name,), total in found.items()}
    assert told == {"alice": {}, "bob": {"requests_per_minute": 1}}


def test_the_sum_of_a_series_is_the_total(traffic):
    edges = [HOUR[0] + timedelta(minutes=5 * n) for n in range(13)]
    found = Reading(*HOUR).series(edges, ("tenant",))
    assert {bucket for bucket, _ in found} == {6}  # from noon on
    assert {name: total.cost for (_, (name,)), total in found.items()} == {"alice": 500, "bob": 250}
    assert sum(total.requests for total in found.values()) == UsageRow.objects.count()


def test_a_range_ends_before_its_end(traffic):
    minute = NOON.replace(second=0, microsecond=0)
    assert selectors.breakdown("tenant", minute - timedelta(hours=1), minute) == []
    assert len(selectors.breakdown("tenant", minute, minute + timedelta(minutes=1))) == 2


def test_rolling_up_again_changes_nothing(traffic):
    tasks.roll_up()
    tasks.roll_up_days()
    before = rolled_up()
    rollup.roll_up_range(*HOUR)
    assert rolled_up() == before
    assert [len(rows) for rows in before] == [2, 2, 2, 2]
    assert (tasks.roll_up(), tasks.roll_up_days()) == (0, 0)


def rolled_up():
    return [list(model.objects.order_by("id").values()) for model in MODELS.values()]


def test_a_roll_up_after_a_pause_catches_up():
    save(*[record(at=NOON + timedelta(minutes=n)) for n in range(20)])
    assert tasks.roll_up() == 20
    assert UsageMinute.objects.count() == 20
    assert not TouchedMinute.objects.exists()


def test_marks_of_rows_that_came_during_a_roll_up_stay(monkeypatch):
    save(record())
    real = rollup._count_slots

    def and_meanwhile(*of):
        done = real(*of)
        save(record())
        return done

    monkeypatch.setattr(rollup, "_count_slots", and_meanwhile)
    tasks.roll_up()
    monkeypatch.undo()
    assert UsageMinute.objects.get().requests == 1
    assert tasks.roll_up() == 1
    assert UsageMinute.objects.get().requests == 2


def test_a_page_costs_a_bounded_number_of_queries(django_assert_max_num_queries):
    save(*[record(at=NOON + timedelta(minutes=n), tenant=f"t{n}") for n in range(25)])
    with django_assert_max_num_queries(8):
        selectors.breakdown("tenant", *HOUR)
    tasks.roll_up()
    tasks.roll_up_days()
    with django_assert_max_num_queries(5):
        assert len(selectors.breakdown("tenant", *HOUR)) == 25


def test_old_records_are_forgotten_and_their_roll_ups_stay(settings):
    settings.FAIRLANE_KEEP_MINUTES_DAYS = 3
    now = datetime.now(UTC)
    save(record(at=now - timedelta(days=40)), record(at=now - timedelta(days=1)))
    tasks.roll_up()
    tasks.roll_up_days()
    assert tasks.purge_records(keep_days=35) == 1
    assert UsageRow.objects.count() == 1
    assert [model.objects.count() for model in MODELS.values()] == [1, 2, 2, 2]


def test_records_that_are_not_rolled_up_yet_are_not_forgotten():
    save(record(at=datetime.now(UTC) - timedelta(days=40)))
    assert tasks.purge_records(keep_days=35) == 0


def test_forgetting_goes_in_chunks(monkeypatch):
    monkeypatch.setattr(tasks, "ROWS_A_DELETE", 10)
    at = datetime.now(UTC) - timedelta(days=40)
    save(*[record(at=at) for _ in range(35)])
    tasks.roll_up()
    tasks.roll_up_days()
    assert tasks.purge_records(keep_days=35) == 35


def test_a_late_record_of_a_minute_whose_rows_are_gone_does_not_shrink_its_roll_up():
    at = datetime.now(UTC) - timedelta(days=40)
    save(*[record(at=at) for _ in range(5)])
    for late in (False, True):
        if late:
            save(record(at=at))
        tasks.roll_up()
        tasks.roll_up_days()
        tasks.purge_records(keep_days=35)
    assert [model.objects.get().requests for model in (UsageQuarter, UsageHour, UsageDay)] == [
        5
    ] * 3


def sample(debt, at, gateway="g1"):
    tenants = {"alice": {"queued": 2, "running": 1, "counter": 9.0, "debt": debt, "weight": 1.0}}
    lanes = {"standard": {"queued": 2, "running": 1, "tenants": tenants}}
    state = {"gateway": gateway, "pools": {"chat": {"lanes": lanes, "bound_units": 70.0}}}
    services.write_sample(gateway, state, at)


def test_the_live_state_is_the_newest_of_each_gateway_that_is_alive():
    for seconds, gateway in ((9, "dead"), (3, "g1"), (1, "g1"), (2, "g2")):
        sample(seconds, NOON - timedelta(seconds=seconds), gateway)
    shown = selectors.latest_samples(NOON)
    assert [state["gateway"] for state in shown] == ["g1", "g2"]
    tenants = shown[0]["pools"]["chat"]["lanes"]["standard"]["tenants"]
    assert tenants["alice"]["debt"] == 1


def test_samples_are_forgotten():
    sample(1, datetime.now(UTC) - timedelta(hours=2))
    sample(2, datetime.now(UTC))
    assert tasks.purge_samples() == 1
    assert GatewaySample.objects.count() == 1


def test_the_newest_records_come_first_and_a_tenant_sees_its_own():
    for n in range(5):
        save(record(request_id=f"a{n}", at=NOON + timedelta(seconds=n)))
    save(record(request_id="b", tenant="bob"))
    recent = selectors.recent_records(tenant="alice", limit=2)
    assert [one.request_id for one in recent] == ["a4", "a3"]


def test_every_scheduled_task_exists(settings):
    from fairlane.celery import app

    app.loader.import_default_modules()
    scheduled = {entry["task"] for entry in settings.CELERY_BEAT_SCHEDULE.values()}
    assert {"metering.tasks.roll_up", "metering.tasks.purge_records"} <= scheduled
    assert scheduled <= set(app.tasks)
