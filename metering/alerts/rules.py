"""Rules in force: what the table of kinds says, where no admin wanted it otherwise."""

from __future__ import annotations

from typing import cast

from metering.core.alert_kinds import KINDS, Kind, Level, Rule, usual
from metering.models import AlertRule


def rules() -> dict[str, Rule]:
    """Of every kind, by its name."""
    wanted = {row.kind: row for row in AlertRule.objects.all()}
    return {name: merged(kind, wanted.get(name)) for name, kind in KINDS.items()}


def merged(kind: Kind, row: AlertRule | None) -> Rule:
    given = usual(kind)
    if row is None:
        return given
    return Rule(
        kind=kind,
        enabled=row.enabled,
        level=cast(Level, row.level or given.level),
        threshold=given.threshold if row.threshold is None else row.threshold,
        minutes=given.minutes if row.minutes is None else row.minutes,
        remind_hours=given.remind_hours if row.remind_hours is None else row.remind_hours,
    )
