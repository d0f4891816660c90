"""Rules raise alerts from what is seen, keep one open for each object, and end them."""

from __future__ import annotations

from datetime import timedelta

import pytest

from metering import alerts, tasks
from metering.alerts import services
from metering.alerts.services import RuleValues
from metering.alerts.watch import watch
from metering.dashboards.budgets import used_up
from metering.models import Alert, GatewaySample
from tenants.selectors import current_document
from tests import builders
from tests.integration.metering.ledger import ACME, AT, UMBRELLA, change_tier, save

pytestmark = [pytest.mark.django_db, pytest.mark.store]
URL = "http://127.0.0.1:9101/v1"


@pytest.fixture(autouse=True)
def policy_in_force():
    builders.apply_policy()


def seconds(number):
    return timedelta(seconds=number)


def sampled(at, gateway="g1", up=True, **lanes):
    lane = {"queued": 0, "running": 1, "served": 1.0, "oldest_wait_s": 0, "tenants": {}}
    state = {
        "gateway": gateway,
        "state": "local",
        "pools": {
            "demo-chat": {
                "endpoints": {URL: {"available": up}},
                "lanes": {"interactive-standard": lane, **lanes},
                "bound_units": 100.0,
            }
        },
    }
    return GatewaySample.objects.create(gateway=gateway, at=at, state=state)


def opened():
    rows = Alert.objects.filter(resolved_at=None).order_by("kind", "subject")
    return list(rows.values_list("kind", "subject"))


def edit(kind, **values):
    services.edit_rule(kind, RuleValues(**values), actor=builders.ROOT)


# --- budgets ------------------------------------------------------------------------------------


def test_a_budget_is_told_at_80_and_at_100_percent_until_its_window_ends():
    save(3_900_000.0)
    watch(AT)
    assert opened() == []
    save(100_000.0)
    watch(AT)
    assert opened() == [("budget_near", ACME)]
    save(1_000_000.0)
    watch(AT)
    assert opened() == [("budget_exhausted", ACME)]  # one alert a budget, the worse one
    edit("budget_exhausted", enabled=False)
    watch(AT)
    assert opened() == [("budget_near", ACME)]
    watch(AT + timedelta(hours=1))
    assert opened() == []


def test_a_budget_that_refuses_just_below_its_end_is_used_up():
    """What a call may cost is held before it runs, so a budget seldom ends at exactly 100%. The
    list of tenants finds it by the same rule."""
    at = AT - timedelta(minutes=2)
    no_room = {"status": 429, "finish_reason": "throttled", "throttle_reason": ACME}
    save(4_000_000.0, at=at)
    save(*[0.0] * 7, at=at, **no_room)
    tasks.roll_up()
    watch(AT)
    assert opened() == [("budget_near", ACME)]  # one large call did not fit, others may
    assert used_up(current_document(), AT) == set()
    save(985_000.0, at=at)
    watch(AT)
    assert used_up(current_document(), AT) == {"acme"}
    assert opened() == [("budget_exhausted", ACME)]
    told = Alert.objects.get(kind="budget_exhausted").message
    assert told.startswith(f"{ACME} has used 99% of its 5,000,000 units and refused 7 calls;")
    watch(AT + timedelta(hours=1))
    assert opened() == []


def test_what_a_budget_refused_in_an_earlier_window_is_over():
    no_room = {"status": 429, "finish_reason": "throttled", "throttle_reason": ACME}
    save(*[0.0] * 7, at=AT - timedelta(hours=1), **no_room)
    save(4_990_000.0)
    tasks.roll_up()
    watch(AT)
    assert opened() == [("budget_near", ACME)]


def test_a_budget_that_lets_in_past_its_end_is_not_told_twice():
    change_tier("gold", on_exhausted="alert")
    save(6_000_000.0)
    watch(AT)
    assert opened() == [("budget_near", ACME)]  # the gateway tells `budget_used_up` itself


def test_a_day_in_utc_and_an_hour_in_tokyo_are_their_own_windows():
    save(1_900_000.0, account=UMBRELLA, tenant="umbrella")
    watch(AT)
    assert opened() == [("budget_near", UMBRELLA)]
    assert "2026-11-30T00:00Z" in Alert.objects.get().message


# --- throttling and queue time ------------------------------------------------------------------


def test_a_tenant_that_is_throttled_and_a_lane_that_is_slow_are_told():
    at = AT - timedelta(minutes=2)
    common = {"at": at, "tenant": "acme", "lane": "interactive-critical"}
    refused = {"status": 429, "finish_reason": "throttled", "throttle_reason": "max_running"}
    save(*[0.0] * 30, **common, **refused)
    save(*[1.0] * 25, **common, queue_ms=15_000.0)
    tasks.roll_up()
    watch(AT)
    assert opened() == [("queue_p95", "interactive-critical"), ("throttle_rate", "acme")]
    assert "30 of 55 requests (55%)" in Alert.objects.get(kind="throttle_rate").message
    edit("throttle_rate", threshold=0.6)
    edit("queue_p95", enabled=False)
    watch(AT + seconds(61))
    assert opened() == []


# --- live state ---------------------------------------------------------------------------------


def test_an_endpoint_that_stays_down_is_one_alert_that_ends_when_it_is_back_for_a_while():
    sampled(AT - seconds(12), up=False)
    sampled(AT, up=False)
    assert watch(AT) == 1
    watch(AT + seconds(1))
    assert opened() == [("endpoint_down", f"{URL} of demo-chat")]
    assert Alert.objects.get().count == 2
    up = AT + seconds(15)
    sampled(up, up=True)
    watch(up)
    assert opened() != []  # it may go again at once
    later = AT + seconds(70)
    sampled(later - seconds(15), up=True)
    sampled(later, up=True)
    watch(later)
    assert opened() == []


def test_what_cannot_be_told_stays_as_it_was():
    sampled(AT - seconds(12), up=False)
    sampled(AT, up=False)
    watch(AT)
    watch(AT + timedelta(minutes=10))  # no gateway is heard of: nobody knows
    assert opened() == [
        ("endpoint_down", f"{URL} of demo-chat"),
        ("no_gateway", "gateways"),
    ]


def test_a_starved_lane_and_a_debt_are_told():
    still = {"queued": 2, "running": 0, "served": 5.0, "oldest_wait_s": 45.0, "tenants": {}}
    owed = {**still, "running": 1, "tenants": {"acme": {"debt": 250.0}}}
    for at in (AT - seconds(31), AT - seconds(11), AT):
        sampled(at, **{"async-batch": still, "interactive-critical": owed})
    watch(AT)
    assert opened() == [
        ("fairness_debt", "acme in interactive-critical of demo-chat"),
        ("starved_lane", "async-batch of demo-chat"),
    ]


def test_no_gateway_is_missed_where_none_ever_was_and_one_is_until_it_is_back():
    watch(AT)
    assert opened() == []
    sampled(AT - seconds(29))
    watch(AT)
    assert opened() == []
    watch(AT + seconds(5))
    assert opened() == [("no_gateway", "gateways")]
    GatewaySample.objects.all().delete()  # they are kept for an hour only
    watch(AT + timedelta(hours=2))
    assert opened() == [("no_gateway", "gateways")]
    sampled(AT + timedelta(hours=2))
    watch(AT + timedelta(hours=2))
    assert opened() == []


def test_a_gateway_that_lost_the_shared_state_is_told():
    row = sampled(AT)
    GatewaySample.objects.filter(id=row.id).update(state={**row.state, "state": "lost"})
    watch(AT)
    assert opened() == [("state_lost", "g1")]


# --- rules --------------------------------------------------------------------------------------


def test_a_rule_that_is_switched_off_ends_what_it_raised():
    save(4_500_000.0)
    watch(AT)
    edit("budget_near", enabled=False)
    watch(AT)
    assert opened() == []


def test_looking_costs_a_bounded_number_of_queries(django_assert_max_num_queries):
    for number in range(5):
        for at in range(40):
            sampled(AT - seconds(at), gateway=f"g{number}")
    with django_assert_max_num_queries(60):
        watch(AT)


def test_ended_alerts_stay_as_history_and_open_anew():
    alerts.note("endpoint_down", "x", "down", AT)
    alerts.resolve_others("endpoint_down", (), AT)
    alerts.note("endpoint_down", "x", "down again", AT + seconds(5))
    assert list(Alert.objects.order_by("id").values_list("message", flat=True)) == [
        "down",
        "down again",
    ]
