"""The ledger's SQL: one batch of records into the database, by the quickest way each one has.

1. A record is inserted once, by its request id; only records really inserted move a budget window.
2. Everything of a batch is one transaction. Windows are touched in the order of their names, so two
   gateways never wait for each other in a circle.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import chain
from typing import Any

import msgspec
from django.db import connection, transaction
from msgspec.structs import astuple

from metering.core.record import UsageRecord
from metering.core.windows import Window, window_at
from metering.journal_reader import Ended
from tenants.core.snapshot import BudgetPolicy

BudgetOf = Callable[[str], BudgetPolicy | None]

FIELDS = UsageRecord.__struct_fields__
NAMES = ", ".join(f'"{name}"' for name in FIELDS)
TABLE = "metering_usagerow"
POSTGRES_TYPES = {
    **dict.fromkeys(FIELDS, "text"),
    **dict.fromkeys(("prompt_tokens", "cached_tokens", "completion_tokens"), "bigint"),
    **dict.fromkeys(("cost", "estimated_cost", "queue_ms", "ttft_ms", "e2e_ms"), "float8"),
    "at": "timestamptz",
    "status": "integer",
    "policy_revision": "bigint",
    "accounts": "jsonb",
}
POSTGRES_COLUMNS = ", ".join(f'"{name}" {kind}' for name, kind in POSTGRES_TYPES.items())

# One parameter whatever the number of rows: formatting 23 a row costs more than the insert.
POSTGRES_INSERT = (
    f"INSERT INTO {TABLE} ({NAMES}) SELECT {NAMES} FROM json_to_recordset(%s) "  # noqa: S608
    f"AS given ({POSTGRES_COLUMNS}) ON CONFLICT (request_id) DO NOTHING RETURNING request_id"
)
ROWS_A_STATEMENT = 40  # a third less than one by one; its parameters stay under SQLite's old 999


def _sqlite_insert(rows: int) -> str:
    row = f"({', '.join(['%s'] * len(FIELDS))})"
    return (
        f"INSERT INTO {TABLE} ({NAMES}) VALUES {', '.join([row] * rows)} "  # noqa: S608
        "ON CONFLICT (request_id) DO NOTHING"
    )


SQLITE_INSERT, SQLITE_INSERT_MANY = _sqlite_insert(1), _sqlite_insert(ROWS_A_STATEMENT)
SQLITE_KNOWN = f"SELECT request_id FROM {TABLE} WHERE request_id IN "  # noqa: S608
ADD_TO_WINDOW = (
    "INSERT INTO metering_budgetwindow (account, window_start, window_end, used) "
    "VALUES (%s, %s, %s, %s) ON CONFLICT (account, window_start, window_end) "
    "DO UPDATE SET used = metering_budgetwindow.used + excluded.used"
)
MINUTE = timedelta(minutes=1)
TOUCH_MINUTE = "INSERT INTO metering_touchedminute (minute) VALUES (%s)"

assert FIELDS[:2] == ("request_id", "at")
assert FIELDS[-1] == "accounts"
_json = msgspec.json.Encoder().encode


def save(batch: Sequence[Ended], budget_of: BudgetOf) -> int:
    """Returns how many of them the database did not have yet.

    Raises:
        django.db.Error, OverflowError: nothing of the batch is saved.
    """
    by_id = {ended.record.request_id: ended for ended in reversed(batch)}  # the first of each
    with transaction.atomic():
        insert = _insert_postgres if connection.vendor == "postgresql" else _insert_sqlite
        new = [by_id[request_id].record for request_id in insert(by_id)]
        _add_to_windows(new, budget_of)
        _touch_minutes(new)
    return len(new)


def _insert_postgres(by_id: dict[str, Ended]) -> list[str]:
    rows = b"[" + b",".join(ended.json for ended in by_id.values()) + b"]"
    with connection.cursor() as cursor:
        cursor.execute(POSTGRES_INSERT, [rows.decode()])
        return [request_id for (request_id,) in cursor.fetchall()]


def _insert_sqlite(by_id: dict[str, Ended]) -> list[str]:
    """Which of them are known is looked up only when some are, after a crash; until the
    transaction ends nobody else writes, so what is unknown stays so."""
    with connection.cursor() as cursor:
        sid = transaction.savepoint()
        if _insert_rows(cursor, [e.record for e in by_id.values()]) == len(by_id):
            transaction.savepoint_commit(sid)
            return list(by_id)
        transaction.savepoint_rollback(sid)
        places = ", ".join(["%s"] * len(by_id))
        cursor.execute(f"{SQLITE_KNOWN} ({places})", list(by_id))
        known = {request_id for (request_id,) in cursor.fetchall()}
        new = [request_id for request_id in by_id if request_id not in known]
        _insert_rows(cursor, [by_id[request_id].record for request_id in new])
    return new


def _insert_rows(cursor: Any, records: Sequence[UsageRecord]) -> int:
    """Returns how many were not known."""
    rows = _sqlite_rows(records)
    whole = len(rows) - len(rows) % ROWS_A_STATEMENT
    inserted = 0
    for statement, given in (
        (SQLITE_INSERT_MANY, list(_joined(rows[:whole]))),
        (SQLITE_INSERT, rows[whole:]),
    ):
        if given:
            cursor.executemany(statement, given)
            inserted += cursor.rowcount
    return inserted


def _joined(rows: list[tuple[Any, ...]]) -> Iterator[list[Any]]:
    for start in range(0, len(rows), ROWS_A_STATEMENT):
        yield list(chain.from_iterable(rows[start : start + ROWS_A_STATEMENT]))


def _sqlite_rows(records: Iterable[UsageRecord]) -> list[tuple[Any, ...]]:
    """As Django writes them: times in UTC without their offset, accounts as JSON."""
    texts: dict[tuple[str, ...], str] = {}  # few sets of accounts, many records
    rows = []
    for record in records:
        if (accounts := texts.get(record.accounts)) is None:
            accounts = texts[record.accounts] = _json(record.accounts).decode()
        request_id, at, *others, _ = astuple(record)
        rows.append((request_id, at.isoformat(" ")[:-6], *others, accounts))
    return rows


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
