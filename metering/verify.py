"""The ledger check as a whole: stored counters, live counters, alerts, repairs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction

from metering import alerts, ledger_check
from metering.core.cut import differ
from metering.core.windows import Window
from metering.ledger_check import STORED
from metering.models import Correction, GatewayCheck
from metering.selectors import latest_samples
from tenants.services import Actor, record_counter

ALIVE = timedelta(seconds=30)
MOST_LIVE = 50  # of one gateway; each costs a count
MOST_ALERTS = 50  # of one kind; a broken ledger need not fill the page


@dataclass(frozen=True, slots=True)
class Finding:
    """A counter that is not what the ledger says. `where`: "stored", or a gateway's name."""

    where: str
    account: str
    window: Window | None
    counted: float
    ledger: float
    correction: int = 0  # the newest that a live counter contained

    @property
    def difference(self) -> float:
        return self.counted - self.ledger

    def row(self) -> dict[str, Any]:
        """For people and programs: plain values."""
        return {
            "account": self.account,
            "window": f"{self.window.start:%Y-%m-%dT%H:%MZ}" if self.window else "",
            "counter": self.where,
            "counted": self.counted,
            "ledger": self.ledger,
            "difference": self.difference,
        }

    def __str__(self) -> str:
        at = f" from {self.window.start:%Y-%m-%d %H:%M}" if self.window else ""
        return (
            f"{self.account}{at}: {self.where} {self.counted:,.12g}, "
            f"ledger {self.ledger:,.12g}, difference {self.difference:+,.12g}"
        )


def stored(at: datetime, whole: bool = True) -> Iterator[Finding]:
    for found in ledger_check.check(at, whole):
        yield Finding(STORED, found.account, found.window, found.counted, found.ledger)


def live(at: datetime) -> Iterator[Finding]:
    """As the gateways that are running found themselves, some seconds ago at most. They compare
    with stored counters; where one of those is wrong itself, the ledger decides here."""
    for check in GatewayCheck.objects.filter(at__gt=at - ALIVE).order_by("gateway"):
        for each in check.differences[:MOST_LIVE]:
            window = _window(each["start"], each["end"])
            wrong = ledger_check.difference(each["account"], window) if window else None
            ledger = each["ledger"] - (wrong.counted - wrong.ledger if wrong else 0.0)
            if differ(each["counted"], ledger):
                yield Finding(
                    where=check.gateway,
                    account=each["account"],
                    window=window,
                    counted=each["counted"],
                    ledger=ledger,
                    correction=each["correction"],
                )


def _window(start: str | None, end: str | None) -> Window | None:
    if start is None or end is None:
        return None
    return Window(datetime.fromisoformat(start), datetime.fromisoformat(end))


def unchecked(since: datetime) -> list[str]:
    """Running gateways that have not compared all their counters since then."""
    checked = GatewayCheck.objects.filter(whole_since__gte=since)
    names = set(checked.values_list("gateway", flat=True))
    return [s["gateway"] for s in latest_samples() if s["gateway"] not in names]


def raise_alerts(found_stored: Iterable[Finding], whole: bool, at: datetime) -> int:
    """One alert for each counter that differs, the live ones too; returns how many. Those that no
    longer do are resolved: of stored counters only where the `whole` ledger was checked."""
    differing = _by_subject(found_stored)
    alerts.note_all("ledger", differing, at)
    if whole:
        alerts.resolve_others("ledger", differing, at)
    running = _by_subject(live(at))
    alerts.note_all("live_counters", running, at)
    alerts.resolve_others("live_counters", running, at)
    return len(differing) + len(running)


def _by_subject(findings: Iterable[Finding]) -> dict[str, str]:
    found: dict[str, str] = {}
    for finding in findings:
        if len(found) < MOST_ALERTS:
            found[f"{finding.account} ({finding.where})"] = str(finding)
    return found


def repair(actor: Actor, finding: Finding, reason: str) -> bool:
    """Set a stored counter to the ledger, or tell a gateway by how much its own is off. False:
    it can't be mended so (an open reservation), or it has changed meanwhile.

    Raises:
        tenants.errors.NotAllowed
    """
    if finding.window is None:
        return False
    if finding.where == STORED:
        wrong = ledger_check.Difference(
            finding.account, finding.window, finding.counted, finding.ledger
        )
        return ledger_check.repair(actor, wrong, reason)
    return _adjust(actor, finding, finding.window, reason)


def _adjust(actor: Actor, finding: Finding, window: Window, reason: str) -> bool:
    """As an amount to add: what the gateway counts meanwhile stays."""
    told = f"{reason} (in gateway {finding.where})"
    with transaction.atomic():
        record_counter(actor, finding.account, finding.counted, finding.ledger, told)
        since = Correction.objects.filter(account=finding.account, id__gt=finding.correction)
        if since.exists():  # it was not so any more: a second repair, or one of the stored counter
            transaction.set_rollback(True)
            return False
        Correction.objects.create(
            account=finding.account,
            at=window.start,
            units=-finding.difference,
            counter=finding.where,
            actor=actor.name,
            reason=reason,
        )
    return True


def wait_for_gateways(since: datetime, pause: Callable[[], bool]) -> list[str]:
    """Until every running gateway has compared all it counts since then, or `pause` says that it
    took too long; returns those that have not."""
    while (missing := unchecked(since)) and pause():
        pass
    return missing
