"""Records and journal entries with the parts that a test does not care about filled in."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime
from typing import Any

import msgspec

from metering.core.record import UsageRecord
from metering.journal import OpenEntry
from metering.journal_reader import Ended
from tenants.core.snapshot import BudgetPolicy

NOON = datetime(2026, 11, 29, 12, 0, 30, 250_000, tzinfo=UTC)
HOURLY = BudgetPolicy("tenant:alice/hourly", "hourly", "sustained", 1_000, period="hour")
DAILY = BudgetPolicy(
    "key:k1/daily", "daily", "sustained", 5_000, period="day", timezone="Asia/Tokyo"
)
BURST = BudgetPolicy("tenant:alice/burst", "burst", "burst", 500, refill_per_second=5)
BUDGETS = (HOURLY, DAILY, BURST)
ACCOUNTS = tuple(budget.account for budget in BUDGETS)
_numbers = itertools.count(1)


def record(**fields: Any) -> UsageRecord:
    given: dict[str, Any] = {
        "request_id": f"r{next(_numbers)}",
        "at": NOON,
        "tenant": "alice",
        "application": "bot",
        "key": "k1",
        "model": "demo-chat",
        "lane": "standard",
        "prompt_tokens": 10,
        "completion_tokens": 20,
        "usage_source": "engine",
        "cost": 50.0,
        "accounts": ACCOUNTS,
        **fields,
    }
    return UsageRecord(**given)


def opening(of: UsageRecord, **fields: Any) -> OpenEntry:
    given: dict[str, Any] = {
        "request_id": of.request_id,
        "at": of.at,
        "tenant": of.tenant,
        "prompt_tokens": 11,
        "completion_tokens": 22,
        "estimated_cost": 55.0,
        "accounts": of.accounts,
        **fields,
    }
    return OpenEntry(**given)


def ended(of: UsageRecord) -> Ended:
    return Ended(of, msgspec.json.encode(of))
