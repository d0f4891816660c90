"""Periods of sustained budgets: those with a name, and so many days."""

from __future__ import annotations

import re

PERIOD = r"^(minute|hour|day|week|month|[1-9][0-9]{0,2}d)$"
MOST_DAYS = 366


def budget_period(value: str) -> str:
    if not re.fullmatch(PERIOD, value) or (days_of(value) or 0) > MOST_DAYS:
        raise ValueError(
            f"it takes minute, hour, day, week, month, or days from 1d to {MOST_DAYS}d, such as 90d"
        )
    return value


def days_of(period: str) -> int | None:
    """Of a period such as 90d; None for those with a name."""
    number = period.removesuffix("d")
    return int(number) if number.isdigit() else None
