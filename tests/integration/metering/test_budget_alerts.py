"""An alert of a budget that lets in past its end: told once, and over when it is over."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from django.db import OperationalError

from gateway import alerting
from gateway.alerting import BudgetAlerts
from metering.models import Alert
from tenants.core.snapshot import BudgetPolicy

pytestmark = [pytest.mark.django_db, pytest.mark.store]

AT = datetime(2026, 11, 29, 12, tzinfo=UTC)
HOURLY = BudgetPolicy(
    "tenant:alice/hourly", "hourly", "sustained", 100, period="hour", on_exhausted="alert"
)
DAILY = BudgetPolicy("tenant:alice/daily", "daily", "sustained", 9, period="day")


def step(
    told: BudgetAlerts,
    *,
    at: datetime = AT,
    policy: BudgetPolicy | None = HOURLY,
    left: float = 5.0,
) -> list[Alert]:
    """What the gateway does every few seconds; the alerts that stand after it."""
    new = told.take()
    known = alerting.open_accounts()
    still = told.still(known, new, lambda account: policy, lambda budget: left, at)
    alerting.write(new, still, at)
    told.told()
    return list(Alert.objects.filter(resolved_at=None))


def test_it_is_told_once_and_stands_until_the_window_ends() -> None:
    told = BudgetAlerts()
    assert step(told) == []
    told.used_up((HOURLY, DAILY), (HOURLY.account,))
    [alert] = step(told)
    assert (alert.kind, alert.subject) == ("budget_used_up", HOURLY.account)
    assert "100 units an hour" in alert.message
    assert len(step(told, at=AT + timedelta(minutes=59))) == 1
    assert step(told, at=AT + timedelta(hours=1)) == []
    told.used_up((HOURLY,), (HOURLY.account,))
    assert len(step(told, at=AT + timedelta(hours=1))) == 1
    assert Alert.objects.count() == 2


def test_more_room_in_the_policy_ends_it_and_so_does_another_rule() -> None:
    for policy in (
        BudgetPolicy(HOURLY.account, "hourly", "sustained", 500, 0, "hour", "UTC", "alert"),
        BudgetPolicy(HOURLY.account, "hourly", "sustained", 100, 0, "hour", "UTC", "reject"),
        None,
    ):
        told = BudgetAlerts()
        told.used_up((HOURLY,), (HOURLY.account,))
        assert len(step(told)) == 1
        assert step(told, policy=policy) == []


def test_after_a_restart_it_stands_while_nothing_is_left() -> None:
    told = BudgetAlerts()
    told.used_up((HOURLY,), (HOURLY.account,))
    step(told)
    assert len(step(BudgetAlerts(), left=0.0)) == 1
    assert step(BudgetAlerts(), left=0.5) == []


def test_what_could_not_be_written_is_told_with_the_next_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def away(*_: object) -> None:
        raise OperationalError("the database is away")

    told = BudgetAlerts()
    told.used_up((HOURLY,), (HOURLY.account,))
    with monkeypatch.context() as patched:
        patched.setattr(alerting, "write", away)
        with pytest.raises(OperationalError):
            step(told)
    assert [alert.subject for alert in step(told)] == [HOURLY.account]
    assert told.take() == {}
