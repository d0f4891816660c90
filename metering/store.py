"""The ledger's transaction: one batch of records into the database.

1. A record is inserted once, by its request id; only records really inserted move a budget window.
   One that was made for a gateway taken for dead (`is_guess`) gives way to that gateway's own.
2. Everything of a batch is one transaction. Windows are touched in the order of their names, so two
   gateways never wait for each other in a circle.
3. How rows go in is each database's own: `store_sqlite`, `store_postgres`. All else is the same.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import groupby

from django.db import connection, transaction
from msgspec.structs import replace

from metering import store_postgres, store_sqlite
from metering.core.record import TAKEN_FOR_DEAD, UsageRecord
from metering.core.windows import Window, window_at
from metering.journal_reader import Ended
from metering.models import UsageRow
from tenants.core.snapshot import BudgetPolicy

BudgetOf = Callable[[str], BudgetPolicy | None]
Insert = Callable[[Mapping[str, UsageRecord]], Sequence[str]]  # which of these ids were not known

INSERT: dict[str, Insert] = {
    "sqlite": store_sqlite.insert,
    "postgresql": store_postgres.insert,
}
ADD_TO_WINDOW = (
    "INSERT INTO metering_budgetwindow (used, account, window_start, window_end) "
    "VALUES (%s, %s, %s, %s) ON CONFLICT (account, window_start, window_end) "
    "DO UPDATE SET used = metering_budgetwindow.used + excluded.used"
)
TAKE_FROM_WINDOW = (
    "UPDATE metering_budgetwindow SET used = CASE WHEN used > %s THEN used + %s ELSE 0 END "
    "WHERE account = %s AND window_start = %s AND window_end = %s"
)
MINUTE = timedelta(minutes=1)
TOUCH_MINUTE = "INSERT INTO metering_touchedminute (minute) VALUES (%s)"


def save(batch: Sequence[Ended], budget_of: BudgetOf) -> int:
    """Returns how many of them the database did not have yet.

    Raises:
        django.db.Error, OverflowError: nothing of the batch is saved.
    """
    by_id = {e.record.request_id: e.record for e in reversed(batch)}  # the first of each
    insert = INSERT[connection.vendor]
    with transaction.atomic():
        new = [by_id[request_id] for request_id in insert(by_id)]
        known = by_id.keys() - {record.request_id for record in new}
        guessed = _take_out_guesses([by_id[request_id] for request_id in known])
        if guessed:
            insert({record.request_id: by_id[record.request_id] for record in guessed})
            new += [by_id[record.request_id] for record in guessed]
        _add_to_windows([*new, *(replace(each, cost=-each.cost) for each in guessed)], budget_of)
        _touch_minutes(new)
    return len(new)


def _take_out_guesses(known: Iterable[UsageRecord]) -> list[UsageRecord]:
    """Rows of those that are now known for sure: what each was, as far as windows go by it."""
    sure = {record.request_id: record for record in known if not record.is_guess}
    if not sure:
        return []
    moments = [record.at for record in sure.values()]  # which tell PostgreSQL the partitions
    rows = UsageRow.objects.filter(
        request_id__in=sure, at__in=moments, throttle_reason=TAKEN_FOR_DEAD
    )
    found = [replace(sure[id], cost=cost) for id, cost in rows.values_list("request_id", "cost")]
    rows.delete()
    return found


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
        rows = [(cost, a, when(start), when(end)) for (a, start, end), cost in sorted(used.items())]
        with connection.cursor() as cursor:
            for less, some in groupby(rows, key=lambda row: row[0] < 0):
                if less:
                    cursor.executemany(TAKE_FROM_WINDOW, [(-row[0], *row) for row in some])
                else:
                    cursor.executemany(ADD_TO_WINDOW, list(some))


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
