"""Live state over time, out of samples: who waited, who was served, what a restart does to it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from django.db.models import F

from metering import history, services, tasks
from metering.live_history import past
from metering.models import GatewaySample, LiveDay, LiveHour, LiveMinute

pytestmark = [pytest.mark.django_db, pytest.mark.store]
MINUTE = datetime(2026, 11, 29, 12, 0, tzinfo=UTC)


def share(queued=0, running=0, served=0.0, debt=0.0, weight=1.0):
    return {
        "queued": queued,
        "running": running,
        "served": served,
        "debt": debt,
        "weight": weight,
    }


def sample(second, gateway="g1", bound=70.0, **tenants):
    """One lane of one pool, `second` after the minute began."""
    lane = {
        "queued": sum(each["queued"] for each in tenants.values()),
        "running": sum(each["running"] for each in tenants.values()),
        "oldest_wait_s": float(second),
        "tenants": tenants,
    }
    endpoint = {"available": True, "load": 100.0, "max_load": 400.0, "max_running": 8}
    pool = {"lanes": {"standard": lane}, "endpoints": {"e": endpoint}, "bound_units": bound}
    at = MINUTE + timedelta(seconds=second)
    services.write_sample(gateway, {"gateway": gateway, "pools": {"chat": pool}}, at)


def row(tenant="", lane="standard", model=LiveMinute):
    return model.objects.get(pool="chat", lane=lane, tenant=tenant)


def test_a_minute_tells_how_long_how_many_waited_and_what_they_were_served():
    sample(0, alice=share(queued=2, running=1, served=100.0, debt=5.0, weight=4.0))
    sample(1, alice=share(queued=2, running=1, served=130.0, debt=-9.0, weight=4.0))
    sample(2, alice=share(running=1, served=190.0, debt=3.0, weight=4.0))
    sample(4, alice=share(served=190.0))
    history.count_minute(MINUTE)
    alice = row("alice")
    assert (alice.waiting_s, alice.queued_s, alice.running_s) == (2, 4, 4)
    assert (alice.served, alice.debt, alice.weight) == (90, -9, 4)
    pool = row(lane="")
    assert (pool.load_s / pool.observed_s, pool.max_running_s / pool.observed_s) == (100, 8)
    assert (pool.oldest_wait_s, pool.bound, pool.served) == (4, 70, 90)
    assert pool.observed_s == 4 + history.LONGEST_S  # then the gateway is not known to run


def test_counting_a_minute_again_changes_nothing_and_a_later_sample_is_in():
    sample(0, alice=share(queued=1, served=0.0))
    sample(1, alice=share(queued=1, served=10.0))
    history.count_minute(MINUTE)
    before = list(LiveMinute.objects.values())
    history.count_minute(MINUTE)
    assert list(LiveMinute.objects.values()) == before
    sample(2, alice=share(queued=1, served=25.0))
    history.count_minute(MINUTE)
    assert row("alice").served == 25


def test_service_is_counted_over_the_edge_of_a_minute():
    sample(-1, alice=share(running=1, served=100.0))
    sample(1, alice=share(running=1, served=160.0))
    history.count_minute(MINUTE)
    assert row("alice").served == 60
    assert row("alice").running_s == 1 + history.LONGEST_S


def test_a_restart_is_no_service_and_a_correction_is_taken_back():
    sample(0, alice=share(running=1, served=9_000.0))
    sample(1, gateway="g2", alice=share(running=1, served=50.0))
    sample(2, gateway="g2", alice=share(running=1, served=80.0))
    sample(3, gateway="g2", alice=share(running=1, served=60.0))
    history.count_minute(MINUTE)
    assert row("alice").served == 10


def test_whoever_was_forgotten_while_idle_begins_at_nothing():
    sample(0, alice=share(running=1, served=900.0), bob=share(served=500.0))
    sample(1, alice=share(running=1, served=900.0))
    sample(2, alice=share(running=1, served=900.0), bob=share(running=1, served=40.0))
    sample(3, alice=share(running=1, served=900.0), bob=share(served=70.0))
    sample(4, alice=share(running=1, served=900.0), bob=share(running=1, served=5.0))
    history.count_minute(MINUTE)
    assert row("bob").served == 40 + 30 + 5


def test_hours_are_made_of_minutes():
    for minute in (0, 1, 59):
        debt = {0: 4.0, 1: -30.0, 59: 20.0}[minute]
        sample(60 * minute, alice=share(queued=1, served=100.0 * minute, debt=debt))
        sample(60 * minute + 1, alice=share(queued=3, served=100.0 * minute + 7, debt=0.0))
    for minute in (0, 1, 59):
        history.count_minute(MINUTE + timedelta(minutes=minute))
    for level, start in ((900, 0), (900, 45), (3600, 0), (86_400, -720)):
        history.count_longer(level, MINUTE + timedelta(minutes=start))
    assert LiveDay.objects.filter(tenant="alice").get().served == 21
    hour = row("alice", model=LiveHour)
    assert (hour.served, hour.debt, hour.waiting_s) == (21, -30, 3 * (1 + history.LONGEST_S))
    assert row(model=LiveHour).oldest_wait_s == 59 * 60 + 1
    edges = [MINUTE - timedelta(hours=1), MINUTE, MINUTE + timedelta(hours=1)]
    (found,) = past(edges, "tenant", ("tenant",)).items()
    assert (found[0], found[1].served) == ((1, ("alice",)), 21)


def test_the_worker_catches_up_after_a_pause_and_then_forgets(settings):
    settings.FAIRLANE_KEEP_MINUTES_DAYS = 3
    now = datetime.now(UTC).replace(second=30, microsecond=0)
    for minutes in (90, 20, 0):
        at = now - timedelta(minutes=minutes)
        services.write_sample("g1", state_of_alice(), at)
    tasks.note_live()
    assert LiveMinute.objects.filter(tenant="alice").count() == 2  # of the last hour
    assert LiveHour.objects.filter(tenant="alice").exists()
    count = LiveMinute.objects.update(start=F("start") - timedelta(days=5))
    assert tasks.purge_minutes() == count
    assert not LiveMinute.objects.exists()
    assert GatewaySample.objects.count() == 3


def state_of_alice():
    lane = {"queued": 1, "running": 0, "tenants": {"alice": share(queued=1)}}
    return {"pools": {"chat": {"lanes": {"standard": lane}, "endpoints": {}}}}
