"""Budgets whose `on_exhausted` is `alert`: they let everybody in, and a person is told.

An alert stands from the first call past the budget until the window ends, the policy gives more,
or a correction makes room.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime

from metering import alerts
from metering.core.refusals import each
from metering.core.windows import window_at
from metering.models import Alert
from tenants.core.snapshot import BudgetPolicy

KIND = "budget_used_up"

Window = tuple[datetime, float]  # its end, and the limit that was passed in it


class BudgetAlerts:
    """All on the event loop; what is written (`write`) goes by the database's thread."""

    def __init__(self) -> None:
        self._new: dict[str, str] = {}
        self._taken: dict[str, str] = {}  # and not written yet
        self._known: dict[str, Window] = {}

    def used_up(self, budgets: Iterable[BudgetPolicy], accounts: tuple[str, ...]) -> None:
        """A call was let in past these."""
        for policy in budgets:
            if policy.account in accounts:
                often = each(policy.period or "")
                self._new[policy.account] = (
                    f"The budget {policy.account} allows {policy.cost:.15g} units {often} "
                    "and is used up; calls are let in, as on_exhausted says."
                )

    def take(self) -> dict[str, str]:
        """What was passed and not `told` yet: account -> message."""
        self._taken |= self._new
        self._new = {}
        return self._taken

    def told(self) -> None:
        """What was taken is written; until then it comes again: the database may be away."""
        self._taken = {}

    def still(
        self,
        accounts: Iterable[str],
        new: Iterable[str],
        budget_of: Callable[[str], BudgetPolicy | None],
        remaining: Callable[[BudgetPolicy], float],
        at: datetime,
    ) -> set[str]:
        """Those of the accounts, and the new ones, that are used up at this moment."""
        found = set(new)
        for account in {*accounts, *found}:
            policy = budget_of(account)
            if policy is None or policy.period is None or policy.on_exhausted != "alert":
                continue
            window = window_at(policy.period, policy.timezone, at).end, policy.cost
            if account in found:
                self._known[account] = window
            elif self._known.get(account) == window or remaining(policy) <= 0:
                found.add(account)
        self._known = {a: window for a, window in self._known.items() if a in found}
        return found


def open_accounts() -> list[str]:
    return list(Alert.objects.filter(kind=KIND, resolved_at=None).values_list("subject", flat=True))


def write(new: dict[str, str], still: set[str], at: datetime) -> None:
    alerts.note_all(KIND, new, at)
    alerts.resolve_others(KIND, still, at)
