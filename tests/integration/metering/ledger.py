"""A ledger under a policy in force: Acme by the hour, Umbrella by the day."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from metering import ledger_check, store
from metering.core.windows import window_at
from metering.ledger import PolicyBudgets
from metering.models import BudgetWindow
from metering.verify import Finding, stored
from tenants.selectors import load_snapshot
from tenants.services import Actor
from tests import builders
from tests.calm import calm_zone
from tests.integration.metering.records import ended, record

ACME, UMBRELLA = "tenant:acme/hourly", "tenant:umbrella/daily"
AT = datetime(2026, 11, 29, 12, 30, 15, tzinfo=UTC)
HOUR = window_at("hour", "Asia/Tokyo", AT)
DAY = window_at("day", "UTC", AT)
ROOT = Actor("root", "command")


def apply_calm_policy() -> None:
    """The usual one; the windows of its tenants' budgets do not turn while a test runs that takes
    the moment as it is."""
    document = builders.policy()
    for tenant in document["tenants"]:
        tenant["timezone"] = calm_zone()
    builders.apply_policy(document)


def save(*costs: float, account: str = ACME, at: datetime = AT, **fields: Any) -> None:
    """One request for each cost, as the gateway's ledger saves them under the policy in force."""
    accounts = (account,)
    batch = [ended(record(cost=cost, at=at, accounts=accounts, **fields)) for cost in costs]
    store.save(batch, PolicyBudgets(load_snapshot))


def used(account: str = ACME, at: datetime = AT) -> float:
    rows = BudgetWindow.objects.filter(account=account, window_start__lte=at, window_end__gt=at)
    return sum(rows.values_list("used", flat=True))


def set_counter(value: float, account: str = ACME) -> None:
    BudgetWindow.objects.filter(account=account).update(used=value)


def findings(at: datetime = AT, whole: bool = True) -> list[Finding]:
    return list(stored(at, whole))


def differences(at: datetime = AT, whole: bool = True) -> list[tuple[str, float, float]]:
    return [(f.account, f.counted, f.ledger) for f in ledger_check.check(at, whole)]


def change_tier(name: str, **budget: Any) -> None:
    """Another budget for every tenant of a tier, under the name it had."""
    document = builders.policy()
    tier = next(each for each in document["tiers"] if each["name"] == name)
    sustained = next(each for each in tier["budgets"] if each["kind"] == "sustained")
    sustained.update(budget)
    builders.apply_policy(document, "changed")


def minutes(number: float) -> timedelta:
    return timedelta(minutes=number)
