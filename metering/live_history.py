"""What was running, waiting and served over time, out of the minutes and hours of live state."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from django.db import connection

from metering.core.cover import HOUR, MINUTE, Piece, cover
from metering.history import LARGEST, SLOT, SUMS
from metering.models_rollup import LiveHour, LiveMinute
from metering.rollup import floor, oldest_minute

Kind = Literal["pool", "lane", "tenant"]
OF_KIND: Mapping[Kind, str] = {
    "pool": "lane = '' AND tenant = ''",
    "lane": "lane <> '' AND tenant = ''",
    "tenant": "tenant <> ''",
}
TABLES = {MINUTE: LiveMinute._meta.db_table, HOUR: LiveHour._meta.db_table}


@dataclass(slots=True)
class Past:
    """One pool, lane or tenant in one bucket of time. Seconds are of all requests together."""

    observed_s: float
    queued_s: float
    running_s: float
    waiting_s: float
    served: float
    load_s: float
    max_load_s: float
    max_running_s: float
    endpoints_s: float
    oldest_wait_s: float
    bound: float
    weight: float
    debt: float


def past(
    edges: Sequence[datetime],
    kind: Kind,
    by: Sequence[str],
    where: Mapping[str, str] | None = None,
) -> dict[tuple[int, tuple[str, ...]], Past]:
    """By (n, group): how it was from `edges[n]` to before `edges[n + 1]`; one query."""
    pieces: dict[int, list[Piece]] = defaultdict(list)
    for piece in cover(_whole(edges), levels=(MINUTE, HOUR)):
        pieces[piece.level].append(piece)
    if not pieces:
        return {}
    sql, values = _sql(pieces, kind, by, {k: v for k, v in (where or {}).items() if v})
    with connection.cursor() as cursor:
        cursor.execute(sql, values)
        size = 1 + len(by)
        return {(row[0], tuple(row[1:size])): Past(*row[size:]) for row in cursor.fetchall()}


def _sql(
    pieces: Mapping[int, Sequence[Piece]], kind: Kind, by: Sequence[str], where: Mapping[str, str]
) -> tuple[str, list[Any]]:
    names = ", ".join(("bucket", *by))
    inner = ", ".join((*SLOT, *SUMS, *LARGEST, "debt"))
    conditions = "".join(f" AND t.{name} = %s" for name in where)
    tables, selects, values = [], [], []
    for level, found in pieces.items():
        places = ", ".join(["(%s, %s, %s)"] * len(found))
        tables.append(f"p{level} (bucket, since, until) AS (VALUES {places})")
        values += [v for p in found for v in (p.bucket, _moment(p.since), _moment(p.until))]
        selects.append(
            f"SELECT p.bucket, {inner} FROM p{level} p CROSS JOIN {TABLES[level]} t "  # noqa: S608
            f"WHERE t.start >= p.since AND t.start < p.until AND {OF_KIND[kind]}{conditions}"
        )
    values += list(where.values()) * len(pieces)
    outer = [f"SUM({name})" for name in SUMS] + [f"MAX({name})" for name in LARGEST]
    outer.append("CASE WHEN MAX(debt) > -MIN(debt) THEN MAX(debt) ELSE MIN(debt) END")
    return (
        f"WITH {', '.join(tables)} SELECT {names}, {', '.join(outer)} "  # noqa: S608
        f"FROM ({' UNION ALL '.join(selects)}) AS found GROUP BY {names}",
        values,
    )


def _moment(seconds: int) -> Any:
    return connection.ops.adapt_datetimefield_value(datetime.fromtimestamp(seconds, UTC))


def _whole(edges: Sequence[datetime]) -> list[int]:
    """On whole minutes, and on whole hours where minutes are no longer kept."""
    oldest = oldest_minute(datetime.now(UTC))
    return [int(floor(edge, MINUTE if edge >= oldest else HOUR).timestamp()) for edge in edges]
