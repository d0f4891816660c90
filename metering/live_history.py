"""What was running, waiting and served over time, out of the roll-ups of live state."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from django.db import connection

from metering.core.cover import MINUTE, QUARTER, Piece, cover
from metering.counting import stored, within
from metering.history import FIELDS, LARGEST, LIVE
from metering.rollup import floor, oldest_minute

Kind = Literal["pool", "lane", "tenant"]
OF_KIND: Mapping[Kind, str] = {
    "pool": "lane = '' AND tenant = ''",
    "lane": "lane <> '' AND tenant = ''",
    "tenant": "tenant <> ''",
}


@dataclass(slots=True)
class Past:
    """One pool, lane or tenant in one bucket of time. Seconds are of all requests together; what
    was not asked for is 0."""

    observed_s: float = 0.0
    queued_s: float = 0.0
    running_s: float = 0.0
    waiting_s: float = 0.0
    served: float = 0.0
    load_s: float = 0.0
    max_load_s: float = 0.0
    max_running_s: float = 0.0
    endpoints_s: float = 0.0
    oldest_wait_s: float = 0.0
    bound: float = 0.0
    weight: float = 0.0
    debt: float = 0.0


def past(
    edges: Sequence[datetime],
    kind: Kind,
    by: Sequence[str],
    where: Mapping[str, str] | None = None,
    fields: Sequence[str] = FIELDS,
) -> dict[tuple[int, tuple[str, ...]], Past]:
    """By (n, group): how it was from `edges[n]` to before `edges[n + 1]`; one query."""
    pieces: dict[int, list[Piece]] = defaultdict(list)
    for piece in cover(_whole(edges)):
        pieces[piece.level].append(piece)
    if not pieces:
        return {}
    sql, values = _sql(pieces, kind, by, {k: v for k, v in (where or {}).items() if v}, fields)
    with connection.cursor() as cursor:
        cursor.execute(sql, values)
        size = 1 + len(by)
        return {
            (row[0], tuple(row[1:size])): Past(**dict(zip(fields, row[size:], strict=True)))
            for row in cursor.fetchall()
        }


def _sql(
    pieces: Mapping[int, Sequence[Piece]],
    kind: Kind,
    by: Sequence[str],
    where: Mapping[str, str],
    fields: Sequence[str],
) -> tuple[str, list[Any]]:
    names = ", ".join(("bucket", *by))
    inner = ", ".join((*by, *fields))
    conditions = "".join(f" AND t.{name} = %s" for name in where)
    tables, selects, values = [], [], []
    for level, found in pieces.items():
        places = ", ".join(["(%s, %s, %s)"] * len(found))
        tables.append(f"p{level} (bucket, since, until) AS (VALUES {places})")
        values += [v for p in found for v in (p.bucket, stored(p.since), stored(p.until))]
        table = f"{LIVE[level]._meta.db_table} t"
        asked = f" AND {OF_KIND[kind]}{conditions}"
        selects.append(within(f"p{level}", inner, table, "start", asked))
    values += list(where.values()) * len(pieces)
    outer = [_added_up(name) for name in fields]
    return (
        f"WITH {', '.join(tables)} SELECT {names}, {', '.join(outer)} "  # noqa: S608
        f"FROM ({' UNION ALL '.join(selects)}) AS found GROUP BY {names}",
        values,
    )


def _added_up(name: str) -> str:
    if name == "debt":
        return "CASE WHEN MAX(debt) > -MIN(debt) THEN MAX(debt) ELSE MIN(debt) END"
    return f"MAX({name})" if name in LARGEST else f"SUM({name})"


def _whole(edges: Sequence[datetime]) -> list[int]:
    """On whole minutes, and on whole quarters where minutes are no longer kept."""
    oldest = oldest_minute(datetime.now(UTC))
    return [int(floor(edge, MINUTE if edge >= oldest else QUARTER).timestamp()) for edge in edges]
