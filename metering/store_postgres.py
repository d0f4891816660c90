"""Usage records into PostgreSQL by COPY, straight into the partitions they belong to.

1. No record of a batch is known but after a crash. So COPY, which has no ON CONFLICT, goes into the
   table itself: that costs the server half of what the way through another table does. Where a
   record is known it refuses the batch, which then takes that way.
2. A request is one row by its id and its time of arrival: a partitioned table has no constraint
   without what it is divided by. The gateway gives both, and the same to all that it writes of a
   request.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
from django.db import IntegrityError, connection, transaction
from msgspec.structs import astuple
from psycopg.errors import UniqueViolation
from psycopg.types.json import Jsonb

from metering.core.record import UsageRecord

FIELDS = UsageRecord.__struct_fields__
NAMES = ", ".join(f'"{name}"' for name in FIELDS)
TYPES = {
    **dict.fromkeys(FIELDS, "text"),
    **dict.fromkeys(("prompt_tokens", "cached_tokens", "completion_tokens"), "int8"),
    **dict.fromkeys(("cost", "estimated_cost", "queue_ms", "ttft_ms", "e2e_ms"), "float8"),
    "at": "timestamptz",
    "status": "int4",
    "policy_revision": "int8",
    "accounts": "jsonb",
}
COLUMNS = ", ".join(f'"{name}" {kind}' for name, kind in TYPES.items())
TABLE, GIVEN = "metering_usagerow", "usage_given"
MAKE_GIVEN = f"CREATE TEMPORARY TABLE {GIVEN} ({COLUMNS}) ON COMMIT DROP"
INSERT_GIVEN = (
    f"INSERT INTO {TABLE} ({NAMES}) SELECT {NAMES} FROM {GIVEN} "  # noqa: S608
    "ON CONFLICT (request_id, at) DO NOTHING RETURNING request_id"
)

assert FIELDS[-1] == "accounts"
_json = msgspec.json.Encoder().encode


def insert(by_id: Mapping[str, UsageRecord]) -> Sequence[str]:
    """Returns the ids that were not known."""
    try:
        with transaction.atomic():
            _copy(TABLE, by_id.values())
    except IntegrityError as error:
        if not isinstance(error.__cause__, UniqueViolation):
            raise
        return _insert_unknown(by_id.values())
    return list(by_id)


def _insert_unknown(records: Iterable[UsageRecord]) -> list[str]:
    with connection.cursor() as cursor:
        cursor.execute(MAKE_GIVEN)
        _copy(GIVEN, records)
        cursor.execute(INSERT_GIVEN)
        new = [request_id for (request_id,) in cursor.fetchall()]
        cursor.execute(f"DROP TABLE {GIVEN}")
    return new


def _copy(table: str, records: Iterable[UsageRecord]) -> None:
    statement = f"COPY {table} ({NAMES}) FROM STDIN (FORMAT BINARY)"
    documents: dict[tuple[str, ...], Jsonb] = {}  # few sets of accounts, many records
    # Django wraps the errors of `execute`, but not those of what psycopg has besides.
    with connection.cursor() as cursor, connection.wrap_database_errors:
        given: Any = cursor
        with given.copy(statement) as stream:
            stream.set_types(list(TYPES.values()))
            for record in records:
                *values, accounts = astuple(record)
                if (document := documents.get(accounts)) is None:
                    document = documents[accounts] = Jsonb(accounts, _json)
                stream.write_row((*values, document))
