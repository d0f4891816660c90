"""Budgets and holds with the parts that a test does not care about filled in."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime
from typing import Any

from metering.core.hold import Admitted, Hold, Refused
from tenants.core.snapshot import BudgetPolicy, Limits

NOON = datetime(2026, 11, 29, 12, 0, 0, tzinfo=UTC)
_numbers = itertools.count(1)


def sustained(cost: float, name: str = "hourly", owner: str = "tenant:alice", **more: Any):
    given = {"period": "hour", **more}
    return BudgetPolicy(f"{owner}/{name}", name, "sustained", cost, **given)


def burst(
    cost: float, refill: float, name: str = "burst", owner: str = "tenant:alice", **more: Any
):
    return BudgetPolicy(f"{owner}/{name}", name, "burst", cost, refill_per_second=refill, **more)


def hold(*budgets: BudgetPolicy, cost: float = 10.0, ceiling: float | None = None, **more: Any):
    given: dict[str, Any] = {"tenant": "alice", "limits": Limits(), "tokens": 10, **more}
    given.setdefault("request_id", f"r{next(_numbers)}")
    most = cost if ceiling is None else ceiling
    return Hold(budgets=budgets, cost=cost, ceiling_cost=most, **given)


def admitted(verdict: Admitted | Refused) -> Admitted:
    assert isinstance(verdict, Admitted), verdict
    return verdict


def refused(verdict: Admitted | Refused) -> Refused:
    assert isinstance(verdict, Refused), verdict
    return verdict
