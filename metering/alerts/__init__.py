"""Alerts: what a person should look at. One open row for each kind and subject, however often."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta

import structlog
from django.db import IntegrityError, transaction
from django.db.models import F

from metering.models import Alert

log = structlog.get_logger("fairlane.alerts")


def note(kind: str, subject: str, message: str, at: datetime) -> None:
    """It is so now; an alert that is open already counts once more."""
    message = message.rstrip(".")  # pages and mails go on after it
    known = Alert.objects.filter(kind=kind, subject=subject, resolved_at=None)
    again = {"message": message, "last_at": at, "count": F("count") + 1}
    if known.update(**again):
        return
    try:
        with transaction.atomic():
            Alert.objects.create(
                kind=kind, subject=subject, message=message, first_at=at, last_at=at
            )
    except IntegrityError:  # another process was first
        known.update(**again)
        return
    log.error("alert", kind=kind, subject=subject, message=message)


def note_all(kind: str, found: Mapping[str, str], at: datetime) -> None:
    """`found`: subject -> message."""
    for subject, message in found.items():
        note(kind, subject, message, at)


def resolve_others(
    kind: str, found: Iterable[str], at: datetime, quiet: timedelta = timedelta()
) -> None:
    """All open alerts of this kind but those subjects' are over, once they were not so for `quiet`:
    what comes and goes is one alert."""
    gone = Alert.objects.filter(kind=kind, resolved_at=None, last_at__lte=at - quiet)
    for alert in gone.exclude(subject__in=list(found)):
        if Alert.objects.filter(id=alert.id, resolved_at=None).update(resolved_at=at):
            log.info("alert_resolved", kind=alert.kind, subject=alert.subject)


def resolve(kind: str, subject: str, at: datetime) -> None:
    Alert.objects.filter(kind=kind, subject=subject, resolved_at=None).update(resolved_at=at)


def waiting_count() -> int:
    """Open alerts that nobody has acknowledged."""
    return Alert.objects.filter(resolved_at=None, acknowledged_at=None).count()
