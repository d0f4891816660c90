"""Who is told of which alert, once: queues deliveries, and decides when one is sent again.

1. An alert is told when it opens, again after the rule's reminder time while nobody acknowledged
   it, and when it is over. Each is queued by whoever moves the alert's row from what it was.
2. That it is over is told to those who were told that it began.
3. A rule that is switched off tells nobody.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction
from django.db.models import F

from metering.alerts.rules import rules
from metering.core.alert_kinds import Rule
from metering.models import Alert, AlertDelivery, AlertDestination

MOST_ATTEMPTS = 8
FIRST_PAUSE_S = 30.0  # doubled each time: the last attempt is an hour after the first


def queue(at: datetime) -> int:
    """Returns how many messages were queued."""
    known = rules()
    queued = 0
    seen: dict[str, Any]
    told: dict[str, Any]
    for alert in Alert.objects.filter(resolved_at=None):
        rule = known.get(alert.kind)
        if alert.told_at is None:
            seen, told = {"told_at": None}, {"told_at": at}
            queued += _queue(alert, "opened", _wanting(alert, rule), seen, told, at)
        elif _is_due(alert, rule, at):
            told = {"told_at": at, "reminders": F("reminders") + 1}
            seen = {"told_at": alert.told_at, "acknowledged_at": None}
            queued += _queue(alert, "reminder", _wanting(alert, rule), seen, told, at)
    for alert in Alert.objects.filter(
        resolved_at__isnull=False, told_at__isnull=False, end_told=False
    ):
        told_before = AlertDestination.objects.filter(enabled=True, deliveries__alert=alert)
        seen, told = {"end_told": False}, {"end_told": True}
        queued += _queue(alert, "resolved", told_before.distinct(), seen, told, at)
    return queued


def _is_due(alert: Alert, rule: Rule | None, at: datetime) -> bool:
    if rule is None or not rule.remind_hours or alert.acknowledged_at or alert.told_at is None:
        return False
    return alert.told_at + timedelta(hours=rule.remind_hours) <= at


def _wanting(alert: Alert, rule: Rule | None) -> list[AlertDestination]:
    if rule is None or not rule.enabled:
        return []
    destinations = AlertDestination.objects.filter(enabled=True)
    if rule.level != "critical":
        destinations = destinations.filter(only_critical=False)
    if alert.kind == "undelivered":
        destinations = destinations.exclude(name=alert.subject)
    return list(destinations)


def _queue(
    alert: Alert,
    event: str,
    destinations: Iterable[AlertDestination],
    seen: Mapping[str, Any],
    told: Mapping[str, Any],
    at: datetime,
) -> int:
    wanted = list(destinations)
    number = alert.reminders + 1 if event == "reminder" else 0
    with transaction.atomic():
        if not Alert.objects.filter(id=alert.id, **seen).update(**told):
            return 0  # another process was first
        made = [
            AlertDelivery(
                alert=alert, destination=each, event=event, number=number, due_at=at, created_at=at
            )
            for each in wanted
        ]
        AlertDelivery.objects.bulk_create(made)
    return len(made)


def next_attempt(attempts: int, at: datetime) -> datetime:
    """When to try again after that many attempts."""
    return at + timedelta(seconds=FIRST_PAUSE_S * 2 ** (attempts - 1))
