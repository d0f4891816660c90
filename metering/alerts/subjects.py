"""Where to look for what an alert is about, as its subject says it."""

from __future__ import annotations

from collections.abc import Container

from django.urls import reverse

from metering.models import Alert


def tenant_of(subject: str, known: Container[str]) -> str:
    """Whom an alert is about, where policy still has it: `acme`, `acme in LANE of POOL`, or an
    account such as `application:acme/nightly/hourly`."""
    kind, _, rest = subject.partition(":")
    owned = rest if kind in ("tenant", "application") else subject.partition(" in ")[0]
    name = owned.partition("/")[0]
    return name if name in known else ""


def place_of(row: Alert) -> str:
    """The address of the lane or pool that an alert is about; its subject is `LANE`, `LANE of POOL`
    or `URL of POOL`."""
    if row.kind in ("queue_p95", "starved_lane"):
        return f"{reverse('lanes')}#lane-{row.subject.partition(' of ')[0]}"
    if row.kind == "endpoint_down":
        return f"{reverse('pools')}#pool-{row.subject.rpartition(' of ')[2]}"
    return reverse("alert-rules") if row.kind == "undelivered" else ""


def look_at(row: Alert, known: Container[str]) -> tuple[str, str] | None:
    """Words and address of the page that helps; None where its message has a link already."""
    if ":" in row.subject and row.kind.startswith("budget_"):
        return None
    if name := tenant_of(row.subject, known):
        return f"Tenant {name}", reverse("tenant", args=[name])
    words = {"queue_p95": "Lanes", "starved_lane": "Lanes", "endpoint_down": "Pools"}
    return (words[row.kind], place_of(row)) if row.kind in words else None
