"""Roll-ups of usage: minutes out of records, quarters out of minutes, hours, days.

1. A slot is always counted anew from the level below, never added to: counting twice changes
   nothing, and a late record is in.
2. A mark says what is behind: the ledger marks a minute in the transaction that saves its records,
   and counting a minute marks its quarter. A mark goes in the transaction that counts its slot.
3. Minutes are kept for some days only. What is older is counted by the quarter, out of the records
   themselves, and read no finer.
4. Records are forgotten before quarters, hours and days are. A group that comes out with fewer
   requests than are known has lost what it was counted from: it stays.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
from django.conf import settings
from django.db import connection, transaction

from metering.core.cover import DAY, HOUR, MINUTE, QUARTER, RECORD, Piece
from metering.counting import BY_TENANT, MODELS, SKETCHES, SUMS, TALLIES, Total, count
from metering.key_use import note_keys
from metering.models import UsageRow
from metering.models_rollup import GROUP, TouchedMinute, TouchedQuarter

AT_ONCE = 30  # slots counted in one transaction
FROM = {MINUTE: RECORD, QUARTER: MINUTE, HOUR: QUARTER, DAY: HOUR}
FROM_OLD = {**FROM, QUARTER: RECORD}


def roll_up_minutes(most: int = 500) -> int:
    """Count every minute that got records since it was last counted, the oldest first; after a
    pause some hundred a call. Returns how many minutes."""
    marked = TouchedMinute.objects.order_by("minute").values_list("minute", flat=True).distinct()
    minutes = list(marked[:most])
    for start in range(0, len(minutes), AT_ONCE):
        _count_minutes(minutes[start : start + AT_ONCE])
    note_keys(minutes)
    return len(minutes)


def roll_up_quarters(most: int = 200) -> int:
    """Count every quarter with a minute that was counted since, then its hour and its day. Returns
    how many quarters."""
    marked = TouchedQuarter.objects.order_by("quarter").values_list("quarter", flat=True).distinct()
    quarters = list(marked[:most])
    for start in range(0, len(quarters), AT_ONCE):
        _count_quarters(quarters[start : start + AT_ONCE])
    return len(quarters)


def roll_up_range(since: datetime, until: datetime) -> int:
    """Count every minute of the range that has records again, whatever waits besides, and all that
    is made of them; returns how many minutes."""
    at, minutes = since, list[datetime]()
    rows = UsageRow.objects.order_by("at").values_list("at", flat=True)
    while (found := rows.filter(at__gte=at, at__lt=until).first()) is not None:
        minutes.append(floor(found, MINUTE))
        at = minutes[-1] + timedelta(minutes=1)
    for start in range(0, len(minutes), AT_ONCE):
        _count_minutes(minutes[start : start + AT_ONCE])
    while roll_up_quarters():
        pass
    return len(minutes)


def _count_minutes(minutes: Sequence[datetime]) -> None:
    """The marks are locked before the rows are counted: two roll-ups of one minute go one after
    the other, and rows that come later have their own, later mark."""
    with transaction.atomic():
        marks = TouchedMinute.objects.filter(minute__in=minutes).select_for_update()
        seen = list(marks.values_list("id", flat=True))
        oldest = oldest_minute(datetime.now(UTC))
        _count_slots(MINUTE, [int(m.timestamp()) for m in minutes if m >= oldest])
        quarters = {floor(minute, QUARTER) for minute in minutes}
        TouchedQuarter.objects.bulk_create(TouchedQuarter(quarter=q) for q in sorted(quarters))
        _delete(TouchedMinute, seen)


def _count_quarters(quarters: Sequence[datetime]) -> None:
    with transaction.atomic():
        marks = TouchedQuarter.objects.filter(quarter__in=quarters).select_for_update()
        seen = list(marks.values_list("id", flat=True))
        for level in (QUARTER, HOUR, DAY):
            starts = sorted({int(floor(q, level).timestamp()) for q in quarters})
            _count_slots(level, starts)
            if level in BY_TENANT:
                _count_slots(level, starts, ("tenant",))
        _delete(TouchedQuarter, seen)


def _count_slots(level: int, starts: Sequence[int], group: Sequence[str] = GROUP) -> None:
    oldest = oldest_minute(datetime.now(UTC)).timestamp()
    pieces = [
        Piece(FROM[level] if start >= oldest else FROM_OLD[level], n, start, start + level)
        for n, start in enumerate(starts)
    ]
    totals = count(pieces, group, tallies=TALLIES, sketches=SKETCHES)
    when = connection.ops.adapt_datetimefield_value
    moments = [when(datetime.fromtimestamp(start, UTC)) for start in starts]
    rows = [
        (moments[bucket], *names, *_values(total))
        for (bucket, names), total in sorted(totals.items(), key=lambda each: each[0])
    ]
    model = MODELS[level] if group == GROUP else BY_TENANT[level]
    with connection.cursor() as cursor:
        cursor.executemany(_upsert(model._meta.db_table, ("start", *group)), rows)


def _upsert(table: str, identity: Sequence[str]) -> str:
    """By hand: a model object and its bulk insert cost ten times the counting. The condition is
    invariant 4."""
    counted = (*SUMS, *TALLIES, *SKETCHES)
    names, places = ", ".join((*identity, *counted)), ["%s"] * len((*identity, *counted))
    values = ", ".join(f"{name} = excluded.{name}" for name in counted)
    return (
        f"INSERT INTO {table} ({names}) VALUES ({', '.join(places)}) "  # noqa: S608
        f"ON CONFLICT ({', '.join(identity)}) DO UPDATE SET {values} "
        f"WHERE excluded.requests >= {table}.requests"
    )


def _values(total: Total) -> Iterator[Any]:
    yield from total.sums.values()
    for name in TALLIES:
        yield msgspec.json.encode(total.tallies[name]).decode()
    for name in SKETCHES:
        yield total.sketch(name).pack()


def oldest_minute(at: datetime) -> datetime:
    """From here on there are minutes, of usage and of live state: of whole days."""
    return floor(at - timedelta(days=settings.FAIRLANE_KEEP_MINUTES_DAYS), DAY)


def floor(at: datetime, level: int) -> datetime:
    seconds = int(at.timestamp())
    return datetime.fromtimestamp(seconds - seconds % level, UTC)


def _delete(model: type[TouchedMinute] | type[TouchedQuarter], ids: list[int]) -> None:
    for start in range(0, len(ids), 500):
        model._default_manager.filter(id__in=ids[start : start + 500]).delete()
