"""The one door for what people change about alerts: rules, destinations, acknowledgements.

Each checks that the actor may, and writes row and audit entries in one transaction. A webhook's
secret is in neither; of its address the audit keeps the host, for paths may hold secrets.
"""

from __future__ import annotations

import secrets
from dataclasses import asdict, dataclass
from datetime import datetime
from math import isfinite
from typing import Any
from urllib.parse import urlsplit

from django.core.exceptions import ValidationError
from django.core.validators import validate_email
from django.db import IntegrityError, transaction

from metering.alerts.rules import merged
from metering.alerts.webhook import secret_of
from metering.core.alert_kinds import KINDS, LEVELS
from metering.models import Alert, AlertDelivery, AlertDestination, AlertRule
from metering.models_alerts import SHAPES
from tenants.core.checks import webhook_url
from tenants.core.issue import refused
from tenants.core.text import plain
from tenants.errors import NotFound
from tenants.services import Actor, require
from tenants.services.audit import record

MOST_HOURS, MOST_MINUTES = 24.0 * 30, 60
LONGEST_NAME, LONGEST_NOTE, LONGEST_SUBJECT = 100, 500, 200


# --- rules ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RuleValues:
    """None: as `alert_kinds` says."""

    enabled: bool = True
    level: str | None = None
    threshold: float | None = None
    minutes: int | None = None
    remind_hours: float | None = None


def edit_rule(kind: str, values: RuleValues, *, actor: Actor, reason: str = "") -> AlertRule:
    """All of a rule's values at once.

    Raises:
        NotAllowed, NotFound, PolicyRefused
    """
    require(actor, "alerts.edit")
    if kind not in KINDS:
        raise NotFound(f"there is no kind of alert {kind!r}")
    _check(kind, values)
    with transaction.atomic():
        row, _ = AlertRule.objects.get_or_create(kind=kind)
        before = merged(KINDS[kind], row)
        for name, value in asdict(values).items():
            setattr(row, name, (value or "") if name == "level" else value)
        row.save()
        after = merged(KINDS[kind], row)
        for name in asdict(values):
            old, new = getattr(before, name), getattr(after, name)
            if old != new:
                record(actor, "alert_rule", kind, field=name, old=old, new=new, reason=reason)
    return row


def _check(kind: str, values: RuleValues) -> None:
    about = KINDS[kind]
    if values.level is not None and values.level not in LEVELS:
        raise refused("level", values.level, f"level takes one of: {', '.join(LEVELS)}")
    for field, value, least, most, has in (
        ("threshold", values.threshold, about.least, about.most, about.threshold is not None),
        ("minutes", values.minutes, 1, MOST_MINUTES, about.minutes is not None),
        ("remind_hours", values.remind_hours, 0, MOST_HOURS, True),
    ):
        if value is None:
            continue
        if not has:
            raise refused(field, value, f"alerts of kind {kind} have no {field}")
        if not isfinite(value) or not least <= value <= most:
            raise refused(field, value, f"{field} takes {least:g} to {most:g}")


# --- destinations ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DestinationValues:
    name: str
    address: str
    shape: str = "email"
    enabled: bool = True
    only_critical: bool = False


def create_destination(
    values: DestinationValues, *, actor: Actor, reason: str = ""
) -> tuple[AlertDestination, str | None]:
    """The destination, and a webhook's secret, told once.

    Raises:
        NotAllowed, PolicyRefused
    """
    require(actor, "alerts.edit")
    values = _checked(values)
    row = AlertDestination(**asdict(values), salt=_salt())
    with transaction.atomic():
        _save(row)
        said = {**asdict(values), "address": shown_address(values.shape, values.address)}
        record(actor, "destination", row.name, new=said, reason=reason)
    return row, secret_of(row) if row.shape == "webhook" else None


def edit_destination(
    number: int, values: DestinationValues, *, actor: Actor, reason: str = ""
) -> AlertDestination:
    """Its shape stays.

    Raises:
        NotAllowed, NotFound, PolicyRefused
    """
    require(actor, "alerts.edit")
    with transaction.atomic():
        row = destination(number)
        if values.shape != row.shape:
            raise refused("shape", values.shape, f"a destination keeps its shape, {row.shape}")
        values, before, name = _checked(values), _shown(row), row.name
        for field, value in asdict(values).items():
            setattr(row, field, value)
        _save(row)
        for field, new in _shown(row).items():
            if before[field] != new:
                old = before[field]
                record(actor, "destination", name, field=field, old=old, new=new, reason=reason)
    return row


def delete_destination(number: int, *, actor: Actor, reason: str = "") -> None:
    """With what was sent to it and what waits."""
    require(actor, "alerts.edit")
    with transaction.atomic():
        row = destination(number)
        record(actor, "destination", row.name, old=_shown(row), reason=reason)
        row.delete()


def new_secret(number: int, *, actor: Actor, reason: str = "") -> tuple[AlertDestination, str]:
    """Of a webhook; messages are signed with it from now on, and it is told once.

    Raises:
        NotAllowed, NotFound, PolicyRefused
    """
    require(actor, "alerts.edit")
    with transaction.atomic():
        row = destination(number)
        if row.shape != "webhook":
            raise refused("shape", row.shape, "only a webhook has a secret")
        row.salt = _salt()
        row.save(update_fields=["salt"])
        record(actor, "destination", row.name, field="secret", new="renewed", reason=reason)
    return row, secret_of(row)


def send_test(number: int, at: datetime, *, actor: Actor) -> AlertDelivery:
    """Queue a test message; what becomes of it stands on the page."""
    require(actor, "alerts.edit")
    with transaction.atomic():
        row = destination(number)
        record(actor, "destination", row.name, field="test message", new="sent")
        return AlertDelivery.objects.create(destination=row, event="test", due_at=at)


def destination(number: int) -> AlertDestination:
    row = AlertDestination.objects.filter(id=number).first()
    if row is None:
        raise NotFound("there is no such destination")
    return row


def shown_address(shape: str, address: str) -> str:
    if shape == "email":
        return address
    parts = urlsplit(address)
    return f"{parts.scheme}://{parts.netloc}/…" if parts.path.strip("/") else address


def _shown(row: AlertDestination) -> dict[str, Any]:
    return {
        "name": row.name,
        "address": shown_address(row.shape, row.address),
        "shape": row.shape,
        "enabled": row.enabled,
        "only_critical": row.only_critical,
    }


def _checked(values: DestinationValues) -> DestinationValues:
    name = values.name.strip()
    if not name or len(name) > LONGEST_NAME or not name.isprintable():
        raise refused("name", name, f"name takes 1 to {LONGEST_NAME} printable characters")
    if values.shape not in SHAPES:
        raise refused("shape", values.shape, f"shape takes one of: {', '.join(SHAPES)}")
    check = _mail_addresses if values.shape == "email" else webhook_url
    try:
        address = check(values.address.strip())
    except (ValueError, ValidationError) as error:
        said = error.messages[0] if isinstance(error, ValidationError) else str(error)
        field = "mail addresses" if values.shape == "email" else "URL"
        raise refused("address", values.address, f"{field}: {said}") from None
    return DestinationValues(name, address, values.shape, values.enabled, values.only_critical)


def _mail_addresses(text: str) -> str:
    found = [each.strip() for each in text.replace(";", ",").split(",") if each.strip()]
    if not found:
        raise ValueError("it takes mail addresses, with commas between them")
    for each in found:
        try:
            validate_email(each)
        except ValidationError:
            raise ValueError(f"{each!r} is no mail address") from None
    return ", ".join(found)


def _salt() -> str:
    return secrets.token_urlsafe(18)


def _save(row: AlertDestination) -> None:
    try:
        with transaction.atomic():
            row.save()
    except IntegrityError:
        raise refused("name", row.name, f"there is a destination {row.name!r} already") from None


# --- acknowledging --------------------------------------------------------------------------


def acknowledge(number: int, note: str, at: datetime, *, actor: Actor) -> Alert:
    """Somebody looks after it: no reminder is sent any more. Of two, the first counts.

    Raises:
        NotAllowed, NotFound, PolicyRefused
    """
    require(actor, "alerts.edit")
    note = plain(note).strip()
    if len(note) > LONGEST_NOTE:
        raise refused("note", note, f"note takes up to {LONGEST_NOTE} characters")
    with transaction.atomic():
        row = Alert.objects.filter(id=number).first()
        if row is None:
            raise NotFound("there is no such alert")
        if row.resolved_at is not None:
            raise refused("alert", row.pk, "it is over; there is nothing to acknowledge")
        first = Alert.objects.filter(id=number, acknowledged_at=None, resolved_at=None)
        if first.update(acknowledged_at=at, acknowledged_by=actor.name, note=note):
            name = str(row)[:LONGEST_SUBJECT]
            record(actor, "alert", name, field="acknowledged", new=True, reason=note)
    return Alert.objects.get(id=number)
