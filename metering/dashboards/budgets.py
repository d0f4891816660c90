"""Budgets of one tenant as they stand: from a gateway where one tells, else from the ledger."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django.db.models import Q

from metering import budget_use
from metering.core.windows import longest, window_at
from metering.models import BudgetWindow
from metering.selectors import PastWindow
from tenants.core.document import Budget, Document, Tenant, Tier
from tenants.core.effective import budgets_of
from tenants.core.shown import Level, level
from tenants.core.snapshot import BudgetPolicy

USED_UP = {
    "reject": "used up: its requests are refused",
    "demote": "used up: its requests run in the lowest lane",
    "alert": "used up: its requests still run, and the admins are told",
}


@dataclass(frozen=True, slots=True)
class Owned:
    """A budget that a tenant's requests are held against, and whose it is."""

    account: str
    budget: Budget
    application: str = ""
    key: str = ""


@dataclass(frozen=True, slots=True)
class Left:
    """`remaining` and `reserved` are None where only the ledger is known."""

    owned: Owned
    used: float | None
    reserved: float | None
    remaining: float | None
    resets: datetime | None
    past: list[PastWindow] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.owned.budget.name

    @property
    def kind(self) -> str:
        return self.owned.budget.kind

    @property
    def limit(self) -> float:
        return self.owned.budget.cost

    @property
    def part(self) -> float | None:
        """Of the budget that is gone, 0..1; what running requests hold is gone as well."""
        if self.remaining is None:
            return None
        return min(1.0, max(0.0, 1.0 - self.remaining / self.limit)) if self.limit else 1.0

    @property
    def level(self) -> Level:
        return level(self.part or 0.0)

    @property
    def note(self) -> str:
        """What follows, where nothing of it is left."""
        return USED_UP[self.owned.budget.on_exhausted] if self.remaining == 0 else ""


def owned_by(tenant: Tenant, tier: Tier) -> list[Owned]:
    own = [Owned(f"tenant:{tenant.name}/{b.name}", b) for b in budgets_of(tenant, tier)]
    for each in tenant.applications:
        owner = f"application:{tenant.name}/{each.name}"
        own.extend(Owned(f"{owner}/{b.name}", b, each.name) for b in each.budgets)
    return own


def owned_by_keys(found: Mapping[str, Iterable[Budget]]) -> list[Owned]:
    """`found`: each key's budgets, by its id."""
    return [
        Owned(f"key:{key}/{budget.name}", budget, key=key)
        for key, budgets in found.items()
        for budget in budgets
    ]


def left(
    owned: Iterable[Owned],
    told: Iterable[Mapping[str, Any]],
    windows: Mapping[str, list[PastWindow]],
    timezone: str,
    at: datetime,
) -> list[Left]:
    """`told` is what a gateway says, as in docs/architecture.md; `windows` the ledger's."""
    live = {each["account"]: each for each in told}
    return [
        _told(each, live[each.account], windows.get(each.account, []))
        if each.account in live
        else _counted(each, windows.get(each.account, []), timezone, at)
        for each in owned
    ]


def _told(owned: Owned, state: Mapping[str, Any], past: list[PastWindow]) -> Left:
    resets = state.get("resets_at")
    when = datetime.fromisoformat(resets) if resets else None
    used, reserved, remaining = (state.get(name) for name in ("used", "reserved", "remaining"))
    return Left(owned, used, reserved, remaining, when, past)


def _counted(owned: Owned, past: list[PastWindow], timezone: str, at: datetime) -> Left:
    """The level of a burst budget is known to a gateway only."""
    if owned.budget.period is None:
        return Left(owned, None, None, None, None)
    window = window_at(owned.budget.period, timezone, at)
    used = sum(each.used for each in past if each.start == window.start)
    return Left(owned, used, None, max(0.0, owned.budget.cost - used), window.end, past)


def newest_windows(owned: Sequence[Owned], count: int, at: datetime) -> dict[str, list[PastWindow]]:
    """Of each account those of its `count` newest windows that it used something in, newest
    first; one query for all of them."""
    wanted = Q(pk__in=[])
    for period in {each.budget.period for each in owned if each.budget.period}:
        accounts = [each.account for each in owned if each.budget.period == period]
        wanted |= Q(account__in=accounts, window_start__gt=at - count * longest(period))
    rows = BudgetWindow.objects.filter(wanted).order_by("account", "-window_start", "-id")
    found: dict[str, list[PastWindow]] = {}
    for row in rows:
        past = PastWindow(row.window_start, row.window_end, row.used)
        found.setdefault(row.account, []).append(past)
    return {account: windows[:count] for account, windows in found.items()}


def used_up(document: Document, at: datetime) -> set[str]:
    """Tenants with a budget of their own that its running window has used up, by the same rule as
    alerts."""
    tiers = {tier.name: tier for tier in document.tiers}
    limits, owner = dict[str, BudgetPolicy](), dict[str, str]()
    for tenant in document.tenants:
        for budget in budgets_of(tenant, tiers[tenant.tier]):
            account = f"tenant:{tenant.name}/{budget.name}"
            limits[account] = _in_force(account, budget, tenant.zone)
            owner[account] = tenant.name
    return {owner[use.account] for use in budget_use.uses(limits, at) if use.is_used_up}


def _in_force(account: str, budget: Budget, timezone: str) -> BudgetPolicy:
    return BudgetPolicy(
        account,
        budget.name,
        budget.kind,
        budget.cost,
        period=budget.period,
        timezone=timezone,
        on_exhausted=budget.on_exhausted,
    )
