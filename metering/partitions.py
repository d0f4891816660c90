"""On PostgreSQL usage records lie in one table a day, so that forgetting a day is to drop a table.

1. A record never fails for want of a partition: what has none goes into the default one, and is
   moved out of it as soon as its day gets its own.
2. Who waits for the table's lock makes all others wait behind it. So nothing here waits for long:
   what does not get the lock is left as it is, and tried again at the next run.
3. The table's owner alone may do this. For another role all records stay in the default partition,
   and are forgotten row by row.

A partition tells by its name what is in it: `metering_usagerow_20261130`, or `_202611` for a whole
month where records are kept so long that days would be more tables than a query should look at.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

import structlog
from django.conf import settings
from django.db import DatabaseError, connection, transaction

TABLE = "metering_usagerow"
DEFAULT = f"{TABLE}_default"
DAY = timedelta(days=1)
AHEAD_DAYS = 7
MOST_DAYS = 100  # kept for longer: by the month
NAME = re.compile(rf"{TABLE}_(\d{{4}})(\d\d)(\d\d)?")
LOCK_WAIT = "SET LOCAL lock_timeout = '2s'"
IS_OWNER = (
    "SELECT pg_has_role(relowner, 'USAGE') AND has_schema_privilege(relnamespace, 'CREATE') "
    "FROM pg_class WHERE oid = %s::regclass"
)
PARTITIONS = (
    "SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid "
    "WHERE i.inhparent = %s::regclass"
)
STRAYS = f"SELECT DISTINCT date_trunc('day', at, 'UTC') FROM {DEFAULT}"  # noqa: S608

Span = tuple[datetime, datetime]

log = structlog.get_logger(__name__)


def used() -> bool:
    return connection.vendor == "postgresql"


def make_ahead(at: datetime) -> int:
    """A partition for each day to come soon, and for each that records lie in the default one
    of; returns how many were made."""
    if not used() or not _may_change():
        return 0
    soon = [at + n * DAY for n in range(AHEAD_DAYS + 1)]
    return make([*soon, *(day for (day,) in _ask(STRAYS))])


def make(moments: Iterable[datetime]) -> int:
    """A partition for each of them that has none; returns how many were made."""
    spans, made = existing(), 0
    for moment in moments:
        if not any(since <= moment < until for since, until in spans.values()):
            name, span = _wanted(moment, spans)
            if _attach(name, span):
                spans[name] = span
                made += 1
    return made


def forget(before: datetime) -> int:
    """Drop every partition that is over by then; returns how many records were in them."""
    if not used() or not _may_change():
        return 0
    over = [name for name, (_, until) in existing().items() if until <= before]
    return sum(_drop(name) for name in sorted(over))


def whole(before: datetime) -> datetime:
    """The end of what is forgotten: on PostgreSQL records go by whole partitions."""
    return _span(before, _by_month())[0] if used() else before


def existing() -> dict[str, Span]:
    """By name, without the default one."""
    found = {name: NAME.fullmatch(name) for (name,) in _ask(PARTITIONS, TABLE)}
    return {name: _named(match) for name, match in found.items() if match}


def _named(match: re.Match[str]) -> Span:
    year, month, day = match.groups()
    return _span(datetime(int(year), int(month), int(day or 1), tzinfo=UTC), day is None)


def _by_month() -> bool:
    return settings.FAIRLANE_KEEP_RECORDS_DAYS > MOST_DAYS


def _span(at: datetime, month: bool) -> Span:
    day = at.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    if not month:
        return day, day + DAY
    first = day.replace(day=1)
    return first, (first + 31 * DAY).replace(day=1)


def _wanted(moment: datetime, spans: dict[str, Span]) -> tuple[str, Span]:
    """A month of which some days have their own, from before a longer time was set, stays one of
    days."""
    since, until = _span(moment, month=True)
    if _by_month() and not any(a < until and since < b for a, b in spans.values()):
        return f"{TABLE}_{since:%Y%m}", (since, until)
    since, until = _span(moment, month=False)
    return f"{TABLE}_{since:%Y%m%d}", (since, until)


def _attach(name: str, span: Span) -> bool:
    """Its records that lie in the default partition come with it; nobody adds to them meanwhile."""
    since, until = (moment.isoformat() for moment in span)
    try:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(LOCK_WAIT)
            cursor.execute(f"LOCK TABLE {DEFAULT} IN ACCESS EXCLUSIVE MODE")
            cursor.execute(
                f"CREATE TABLE {name} (LIKE {TABLE} INCLUDING DEFAULTS INCLUDING CONSTRAINTS)"
            )
            cursor.execute(
                f"WITH moved AS (DELETE FROM {DEFAULT} WHERE at >= %s AND at < %s RETURNING *) "  # noqa: S608
                f"INSERT INTO {name} SELECT * FROM moved",
                [since, until],
            )
            cursor.execute(
                f"ALTER TABLE {TABLE} ATTACH PARTITION {name} FOR VALUES FROM (%s) TO (%s)",
                [since, until],
            )
    except DatabaseError as error:
        log.warning("partition_not_made", partition=name, error=str(error))
        return False
    return True


def _drop(name: str) -> int:
    try:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(LOCK_WAIT)
            cursor.execute(f"SELECT count(*) FROM {name}")  # noqa: S608
            (records,) = cursor.fetchone()
            cursor.execute(f"DROP TABLE {name}")
    except DatabaseError as error:
        log.warning("partition_not_dropped", partition=name, error=str(error))
        return 0
    return int(records)


def are_ours() -> bool:
    ((may,),) = _ask(IS_OWNER, TABLE)
    return bool(may)


def _may_change() -> bool:
    if may := are_ours():
        return may
    log.warning("partitions_not_ours", table=TABLE, needs="its owner, and CREATE on its schema")
    return False


def _ask(statement: str, *values: str) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(statement, values)
        found: list[tuple[Any, ...]] = cursor.fetchall()
    return found
