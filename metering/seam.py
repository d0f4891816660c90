"""What the gateway may ask of the accounts, whether they live in this process or in Redis."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Protocol

from metering.core.hold import Admitted, Hold, RateState, Refused
from tenants.core.snapshot import BudgetPolicy, Limits


class Accounts(Protocol):
    def reserve(self, hold: Hold, now: float, at: datetime) -> Admitted | Refused:
        """Take the hold on every rate, depth and budget at once, or on none."""

    def settle(self, request_id: str, tokens: int, cost: float, now: float, at: datetime) -> None:
        """Replace the hold by what was used, in the windows it was taken in. Only the first call
        for an id counts; an unknown id is nothing."""

    def charge(self, request_id: str, tokens: int, cost: float, now: float) -> None:
        """What it took so far, all told; counts only past what is held for it already."""

    def release(self, request_id: str, now: float, at: datetime) -> None:
        """Give back all that `reserve` took, the count of requests too: it never ran."""

    def rates(self, tenant: str, limits: Limits, now: float) -> RateState:
        """As `Admitted.rates`, without asking for anything."""

    def budgets(
        self, budgets: tuple[BudgetPolicy, ...], now: float, at: datetime
    ) -> list[dict[str, Any]]:
        """For pages: account, name, kind, limit, used, reserved, remaining, resets_at."""
