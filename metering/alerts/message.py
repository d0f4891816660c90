"""What is told of an alert, the same to people and programs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from django.conf import settings
from django.urls import reverse

from metering.core.alert_kinds import Rule
from metering.models import AlertDelivery

TEST_TEXT = "This is a test of an alert destination. Nothing is wrong."


@dataclass(frozen=True, slots=True)
class Message:
    id: str  # the same at each attempt
    event: str  # opened, reminder, resolved, test
    alert: int | None
    kind: str
    label: str
    level: str
    subject: str
    message: str
    do: str
    first_at: datetime | None
    last_at: datetime | None
    resolved_at: datetime | None
    url: str  # of its page in the console; empty where FAIRLANE_URL is unset

    @property
    def title(self) -> str:
        start = {"resolved": "Over: ", "reminder": "Still: ", "test": ""}.get(self.event, "")
        return f"{start}{self.label}: {self.subject}"

    def plain(self) -> dict[str, Any]:
        """JSON values; times in UTC, ISO 8601."""
        return {
            name: value.isoformat().replace("+00:00", "Z") if isinstance(value, datetime) else value
            for name, value in asdict(self).items()
        }


def message_of(delivery: AlertDelivery, known: Mapping[str, Rule]) -> Message:
    alert, name = delivery.alert, f"delivery-{delivery.pk}"
    if alert is None:
        subject = delivery.destination.name
        return Message(
            *(name, delivery.event, None, "test", "Test message", "warning", subject, TEST_TEXT),
            *("", None, None, None, address("alerts")),
        )
    rule = known.get(alert.kind)
    return Message(
        id=name,
        event=delivery.event,
        alert=alert.pk,
        kind=alert.kind,
        label=alert.label,
        level=rule.level if rule else "warning",
        subject=alert.subject,
        message=alert.message,
        do=alert.do,
        first_at=alert.first_at,
        last_at=alert.last_at,
        resolved_at=alert.resolved_at,
        url=address("alert", alert.pk),
    )


def address(page: str, *parts: object) -> str:
    base: str = settings.FAIRLANE_URL
    return base.rstrip("/") + reverse(page, args=parts) if base else ""
