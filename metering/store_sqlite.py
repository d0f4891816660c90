"""Usage records into SQLite, some dozens a statement."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

import msgspec
from django.db import connection, transaction
from msgspec.structs import astuple

from metering.core.record import UsageRecord

FIELDS = UsageRecord.__struct_fields__
NAMES = ", ".join(f'"{name}"' for name in FIELDS)
TABLE = "metering_usagerow"
ROWS_A_STATEMENT = 40  # a third less than one by one; its parameters stay under SQLite's old 999


def _statement(rows: int) -> str:
    row = f"({', '.join(['%s'] * len(FIELDS))})"
    return (
        f"INSERT INTO {TABLE} ({NAMES}) VALUES {', '.join([row] * rows)} "  # noqa: S608
        "ON CONFLICT (request_id) DO NOTHING"
    )


INSERT, INSERT_MANY = _statement(1), _statement(ROWS_A_STATEMENT)
KNOWN = f"SELECT request_id FROM {TABLE} WHERE request_id IN "  # noqa: S608

assert FIELDS[:2] == ("request_id", "at")
assert FIELDS[-1] == "accounts"
_json = msgspec.json.Encoder().encode


def insert(by_id: Mapping[str, UsageRecord]) -> Sequence[str]:
    """Returns the ids that were not known. Which are is looked up only when some are, after a
    crash; until the transaction ends nobody else writes, so what is unknown stays so."""
    with connection.cursor() as cursor:
        sid = transaction.savepoint()
        if _insert_rows(cursor, list(by_id.values())) == len(by_id):
            transaction.savepoint_commit(sid)
            return list(by_id)
        transaction.savepoint_rollback(sid)
        places = ", ".join(["%s"] * len(by_id))
        cursor.execute(f"{KNOWN} ({places})", list(by_id))
        known = {request_id for (request_id,) in cursor.fetchall()}
        new = [request_id for request_id in by_id if request_id not in known]
        _insert_rows(cursor, [by_id[request_id] for request_id in new])
    return new


def _insert_rows(cursor: Any, records: Sequence[UsageRecord]) -> int:
    """Returns how many were not known."""
    rows = _rows(records)
    whole = len(rows) - len(rows) % ROWS_A_STATEMENT
    inserted = 0
    for statement, given in (
        (INSERT_MANY, list(_joined(rows[:whole]))),
        (INSERT, rows[whole:]),
    ):
        if given:
            cursor.executemany(statement, given)
            inserted += cursor.rowcount
    return inserted


def _joined(rows: list[tuple[Any, ...]]) -> Iterator[list[Any]]:
    for start in range(0, len(rows), ROWS_A_STATEMENT):
        yield list(chain.from_iterable(rows[start : start + ROWS_A_STATEMENT]))


def _rows(records: Iterable[UsageRecord]) -> list[tuple[Any, ...]]:
    """As Django writes them: times in UTC without their offset, accounts as JSON."""
    texts: dict[tuple[str, ...], str] = {}  # few sets of accounts, many records
    rows = []
    for record in records:
        if (accounts := texts.get(record.accounts)) is None:
            accounts = texts[record.accounts] = _json(record.accounts).decode()
        request_id, at, *others, _ = astuple(record)
        rows.append((request_id, at.isoformat(" ")[:-6], *others, accounts))
    return rows
