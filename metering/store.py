"""The ledger's transaction: one batch of records into the database.

1. A record is inserted once, by its request id; only records really inserted move a budget window.
2. Everything of a batch is one transaction. Windows are touched in the order of their names, so two
   gateways never wait for each other in a circle.
3. How rows go in is each database's own: `store_sqlite`, `store_postgres`. All else is the same.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta

from django.db import connection, transaction

from metering import store_postgres, store_sqlite
from metering.core.record import UsageRecord
from metering.core.windows import Window, window_at
from metering.journal_reader import Ended
from tenants.core.snapshot import BudgetPolicy

BudgetOf = Callable[[str], BudgetPolicy | None]
Insert = Callable[[Mapping[str, UsageRecord]], Sequence[str]]  # which of these ids were not known

INSERT: dict[str, Insert] = {
    "sqlite": store_sqlite.insert,
    "postgresql": store_postgres.insert,
}
ADD_TO_WINDOW = (
    "INSERT INTO metering_budgetwindow (account, window_start, window_end, used) "
    "VALUES (%s, %s, %s, %s) ON CONFLICT (account, window_start, window_end) "
    "DO UPDATE SET used = metering_budgetwindow.used + excluded.used"
)
MINUTE = timedelta(minutes=1)
TOUCH_MINUTE = "INSERT INTO metering_touchedminute (minute) VALUES (%s)"


def save(batch: Sequence[Ended], budget_of: BudgetOf) -> int:
    """Returns how many of them the database did not have yet.

    Raises:
        django.db.Error, OverflowError: nothing of the batch is saved.
    """
    by_id = {e.record.request_id: e.record for e in reversed(batch)}  # the first of each
    with transaction.atomic():
        new = [by_id[request_id] for request_id in INSERT[connection.vendor](by_id)]
        _add_to_windows(new, budget_of)
        _touch_minutes(new)
    return len(new)


def _add_to_windows(records: Sequence[UsageRecord], budget_of: BudgetOf) -> None:
    used: defaultdict[tuple[str, datetime, datetime], float] = defaultdict(float)
    windows: dict[str, Window] = {}  # of each account, the last one used
    for record in records:
        if record.cost:
            for account in record.accounts:
                window = windows.get(account)
                if window is None or record.at not in window:
                    window = _window(budget_of(account), record.at)
                    if window is None:
                        continue
                    windows[account] = window
                used[account, window.start, window.end] += record.cost
    if used:
        when = connection.ops.adapt_datetimefield_value
        rows = [[a, when(start), when(end), cost] for (a, start, end), cost in sorted(used.items())]
        with connection.cursor() as cursor:
            cursor.executemany(ADD_TO_WINDOW, rows)


def _window(policy: BudgetPolicy | None, at: datetime) -> Window | None:
    if policy is None or policy.period is None:  # a burst budget, or one that no longer exists
        return None
    return window_at(policy.period, policy.timezone, at)


def _touch_minutes(records: Sequence[UsageRecord]) -> None:
    minutes = set()
    start = end = datetime.min.replace(tzinfo=UTC)
    for record in records:
        if not start <= record.at < end:
            start = record.at.replace(second=0, microsecond=0)
            end = start + MINUTE
            minutes.add(start)
    if minutes:
        when = connection.ops.adapt_datetimefield_value
        with connection.cursor() as cursor:
            cursor.executemany(TOUCH_MINUTE, [[when(minute)] for minute in sorted(minutes)])
