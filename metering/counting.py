"""Usage of any ranges by any grouping, counted by the database out of roll-ups and records.

1. Whatever reads or makes a roll-up counts here: pages, and each level out of the one below.
2. The database does the counting; what comes back grows with buckets and groups. Sketches of
   roll-ups come packed and are merged here; those of records the database counts too.
3. The number of queries does not depend on the data: one for the sums, one for each tally, one for
   the sketches and, where records are read, one for each duration and one for money.
4. Only requests that were let in have durations worth a quantile: a refusal's are near zero.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from django.db import connection

from metering.core import sketch
from metering.core.cover import DAY, HOUR, MINUTE, QUARTER, RECORD, Piece
from metering.core.sketch import Sketch
from metering.models_rollup import (
    GROUP,
    TenantDay,
    TenantHour,
    TenantSlot,
    UsageDay,
    UsageHour,
    UsageMinute,
    UsageQuarter,
    UsageSlot,
)
from metering.prices import Prices

SUMS = ("requests", "errors", "prompt_tokens", "cached_tokens", "completion_tokens", "cost")
TALLIES = ("ends", "throttled", "money")
SKETCHES = ("queue_ms", "ttft_ms", "tpot_ms", "e2e_ms")
MODELS: dict[int, type[UsageSlot]] = {
    MINUTE: UsageMinute,
    QUARTER: UsageQuarter,
    HOUR: UsageHour,
    DAY: UsageDay,
}
BY_TENANT: dict[int, type[TenantSlot]] = {HOUR: TenantHour, DAY: TenantDay}
RECORDS = "metering_usagerow"
REFUSED = "finish_reason IN ('throttled', 'rejected')"
OF_RECORD = {  # how a record is one row of a roll-up
    "requests": "1",
    "errors": "CASE WHEN status >= 500 THEN 1 ELSE 0 END",
    **{name: name for name in SUMS[2:]},
}
TALLY_OF_RECORD = {"ends": ("finish_reason", "1 = 1")}
TIMED_OUT = "throttle_reason = 'queue_timeout'"  # it was let in, and then refused in the queue
TALLY_OF_RECORD["throttled"] = (
    "throttle_reason",
    f"({REFUSED} OR {TIMED_OUT}) AND throttle_reason <> ''",
)
UNSERVED = ("throttled", "rejected", "error", "timeout")  # ends
ANSWERED_503 = (  # limits that refuse so, not with a 4xx; `gateway.lost` has their answers
    "predicted_wait",
    "queue_timeout",
    "pool_removed",
    "lane_removed",
    "shutting_down",
    "state_unavailable",
)
DURATION = {
    **{name: (name, f"{name} IS NOT NULL") for name in ("queue_ms", "ttft_ms", "e2e_ms")},
    "tpot_ms": (  # of the tokens after the first
        "(e2e_ms - ttft_ms) / (completion_tokens - 1)",
        "ttft_ms IS NOT NULL AND e2e_ms >= ttft_ms AND completion_tokens > 1",
    ),
}

Group = tuple[str, ...]
Where = Mapping[str, str | Sequence[str]]  # field of GROUP -> the value, or one of these
Totals = dict[tuple[int, Group], "Total"]


class Total:
    """What one group came to in one bucket."""

    __slots__ = ("_sketches", "sums", "tallies")

    def __init__(self) -> None:
        self.sums: dict[str, float] = dict.fromkeys(SUMS, 0)
        self.tallies: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self._sketches: dict[str, Sketch] = {}

    @property
    def requests(self) -> int:
        return int(self.sums["requests"])

    @property
    def tokens(self) -> int:
        return int(self.sums["prompt_tokens"] + self.sums["completion_tokens"])

    @property
    def cost(self) -> float:
        return self.sums["cost"]

    @property
    def throttled(self) -> Counter[str]:
        """By the limit that refused."""
        return self.tallies["throttled"]

    @property
    def refused_percent(self) -> float | None:
        """Of its requests, those that a limit refused; None without any request."""
        return 100 * self.throttled.total() / self.requests if self.requests else None

    @property
    def errors(self) -> int:
        """Answers of status 500 and above that no limit decided: who is throttled has no error."""
        refused = sum(self.throttled[limit] for limit in ANSWERED_503)
        return max(0, int(self.sums["errors"]) - refused)

    @property
    def ends(self) -> dict[str, int]:
        """How many requests ended in which way; each counts once. Refused: a limit decided; failed:
        see `errors`; rejected: the request was wrong; cancelled: the caller went away."""
        ends, refused = self.tallies["ends"], self.throttled.total()
        unserved = sum(ends[each] for each in UNSERVED)
        found = {
            "refused": refused,
            "failed": self.errors,
            "rejected": max(0, unserved - refused - self.errors),
            "cancelled": ends["cancelled"],
        }
        return {"served": self.requests - sum(found.values()), **found}

    def sketch(self, name: str) -> Sketch:
        """Of one of the durations."""
        return self._sketches.setdefault(name, Sketch())

    def add(self, other: Total) -> None:
        for name in SUMS:
            self.sums[name] += other.sums[name]
        for name, tally in other.tallies.items():
            self.tallies[name].update(tally)
        for name, durations in other._sketches.items():
            self.sketch(name).update(durations)

    def quantile(self, name: str, q: float) -> float | None:
        """Milliseconds; None where nothing was measured."""
        return self.sketch(name).quantile(q)


def count(
    pieces: Iterable[Piece],
    by: Sequence[str],
    where: Where | None = None,
    tallies: Sequence[str] = (),
    sketches: Sequence[str] = (),
) -> Totals:
    """What each group of `by` (fields of GROUP) used in each bucket; empty ones are left out."""
    ask = _Query(pieces, by, where or {})
    found: Totals = defaultdict(Total)
    if not ask.pieces:
        return found
    for key, values in ask.grouped(_sums):
        found[key].sums = dict(zip(SUMS, values, strict=True))
    for name in tallies:
        for key, (what, number) in ask.grouped(lambda level, n=name: _tally(level, n)):
            found[key].tallies[name][what] = int(number)
    if "money" in tallies:
        _add_money(ask, found)
    if sketches:
        _merge_sketches(ask, sketches, found)
    return found


class _Query:
    """One question in SQL: the same pieces, groups and filters each time."""

    def __init__(self, pieces: Iterable[Piece], by: Sequence[str], where: Where) -> None:
        self.by = tuple(by)
        self.pieces: dict[int, list[Piece]] = defaultdict(list)
        for piece in pieces:
            self.pieces[piece.level].append(piece)
        self._conditions, self._values = _conditions(where)
        self._slim = {*by, *where} <= {"tenant"}

    def grouped(self, columns: Any) -> Iterator[tuple[tuple[int, Group], tuple[Any, ...]]]:
        """`columns(level)` tells the inner select of a level, and how the outer one adds up."""
        inner, outer = [], ""
        for level in self.pieces:
            asked = columns(level)
            if asked is not None:
                what, source, outer, condition = asked
                inner.append((level, what, source, condition))
        if inner:
            names = ", ".join(("bucket", *self.by))
            groups = names + (", what" if "what" in outer.split(", ") else "")
            sql = f"SELECT {names}, {outer} FROM ({{}}) AS found GROUP BY {groups}"  # noqa: S608
            yield from self._rows(sql, inner)

    def plain(self, columns: str) -> Iterator[tuple[tuple[int, Group], tuple[Any, ...]]]:
        """Rows of roll-ups as they are."""
        inner = [(level, columns, "", "") for level in self.pieces if level != RECORD]
        if inner:
            yield from self._rows("{}", inner)

    def _rows(
        self, sql: str, inner: list[tuple[int, str, str, str]]
    ) -> Iterator[tuple[tuple[int, Group], tuple[Any, ...]]]:
        tables, selects, values, filters = [], [], list[Any](), list[Any]()
        for level, what, source, condition in inner:
            pieces = self.pieces[level]
            places = ", ".join(["(%s, %s, %s)"] * len(pieces))
            tables.append(f"p{level} (bucket, since, until) AS (VALUES {places})")
            values += [v for p in pieces for v in (p.bucket, stored(p.since), stored(p.until))]
            bounds, moments = self._bounds(level)
            selects.append(self._select(level, what, source, bounds, condition))
            filters += moments + self._values
        union = " UNION ALL ".join(selects)
        with connection.cursor() as cursor:
            cursor.execute(f"WITH {', '.join(tables)} {sql.format(union)}", values + filters)
            size = 1 + len(self.by)
            for row in cursor:
                yield (row[0], tuple(row[1:size])), tuple(row[size:])

    def _bounds(self, level: int) -> tuple[str, list[Any]]:
        """Of all pieces, as plain values: PostgreSQL then leaves the partitions of other days alone
        before it opens them, which costs more than all the rest."""
        if level != RECORD or connection.vendor != "postgresql":
            return "", []
        pieces = self.pieces[level]
        since, until = min(p.since for p in pieces), max(p.until for p in pieces)
        return " AND t.at >= %s AND t.at < %s", [stored(since), stored(until)]

    def _table(self, level: int) -> str:
        slim = BY_TENANT.get(level) if self._slim else None
        return (slim or MODELS[level])._meta.db_table

    def _select(self, level: int, what: str, source: str, bounds: str, condition: str) -> str:
        table, moment = (RECORDS, "at") if level == RECORD else (self._table(level), "start")
        columns = ", ".join((*(f"t.{name}" for name in self.by), what))
        extra = f" AND {condition}" if condition else ""
        return within(
            f"p{level}", columns, f"{table} t{source}", moment, bounds + self._conditions + extra
        )


def within(pieces: str, columns: str, source: str, moment: str, conditions: str) -> str:
    """A select of what is in each piece, with its bucket first. Each piece is to be one search in
    an index: SQLite keeps to the order of a CROSS JOIN; PostgreSQL is kept from reading a whole
    table for all pieces at once by the OFFSET."""
    asked = f"t.{moment} >= p.since AND t.{moment} < p.until{conditions}"
    if connection.vendor == "postgresql":
        inner = f"SELECT {columns} FROM {source} WHERE {asked} OFFSET 0"  # noqa: S608
        return f"SELECT p.bucket, piece.* FROM {pieces} p CROSS JOIN LATERAL ({inner}) AS piece"  # noqa: S608
    return f"SELECT p.bucket, {columns} FROM {pieces} p CROSS JOIN {source} WHERE {asked}"  # noqa: S608


def stored(seconds: int) -> Any:
    """A moment as a query compares it."""
    return connection.ops.adapt_datetimefield_value(datetime.fromtimestamp(seconds, UTC))


def _conditions(where: Where) -> tuple[str, list[str]]:
    sql, values = "", []
    for name, wanted in where.items():
        if name not in GROUP:
            raise ValueError(f"usage has no {name}; it has {', '.join(GROUP)}")
        given = [wanted] if isinstance(wanted, str) else list(wanted)
        places = ", ".join(["%s"] * len(given)) or "NULL"
        sql += f" AND t.{name} IN ({places})"
        values += given
    return sql, values


def _sums(level: int) -> tuple[str, str, str, str]:
    inner = (f"{OF_RECORD[n] if level == RECORD else n} AS {n}" for n in SUMS)
    outer = (f"SUM({n})" if n == "cost" else f"CAST(SUM({n}) AS bigint)" for n in SUMS)
    return ", ".join(inner), "", ", ".join(outer), ""


def _tally(level: int, name: str) -> tuple[str, str, str, str] | None:
    outer = "what, CAST(SUM(number) AS bigint)"
    if level != RECORD:
        each = f"json_each(t.{name}) j"
        if connection.vendor == "postgresql":
            each = f"LATERAL jsonb_each_text(t.{name}) AS j(key, value)"
        what = "j.key AS what, CAST(j.value AS bigint) AS number"
        return what, f" CROSS JOIN {each}", outer, ""
    if name not in TALLY_OF_RECORD:
        return None
    column, condition = TALLY_OF_RECORD[name]
    return f"{column} AS what, 1 AS number", "", outer, condition


def _add_money(ask: _Query, found: Totals) -> None:
    """Of records, which know their price by revision and model; roll-ups have theirs in a tally."""
    prices = Prices()
    exact: dict[tuple[int, Group], dict[str, Decimal]] = defaultdict(dict)
    for key, (what, prompt, output) in ask.grouped(_priced):
        revision, _, model = what.partition(" ")
        price = prices.of(int(revision), model)
        if price is not None:
            amounts, more = exact[key], price.exact(int(prompt), int(output))
            amounts[price.currency] = amounts.get(price.currency, Decimal()) + more
    for key, amounts in exact.items():
        for currency, amount in amounts.items():
            found[key].tallies["money"][currency] += round(amount)


def _priced(level: int) -> tuple[str, str, str, str] | None:
    if level != RECORD:
        return None
    tokens = "prompt_tokens, completion_tokens"
    what = f"CAST(policy_revision AS text) || ' ' || t.model AS what, {tokens}"
    outer = "what, SUM(prompt_tokens), SUM(completion_tokens)"
    return what, "", outer, "prompt_tokens + completion_tokens > 0"


def _merge_sketches(ask: _Query, names: Sequence[str], found: Totals) -> None:
    parts: dict[tuple[int, Group], list[tuple[Any, ...]]] = defaultdict(list)
    for key, packed in ask.plain(", ".join(names)):
        parts[key].append(packed)
    for key, rows in parts.items():
        for name, column in zip(names, zip(*rows, strict=True), strict=True):
            found[key].sketch(name).update(sketch.merged(map(bytes, column)))
    if RECORD in ask.pieces:
        for name in names:
            for key, (number, times) in ask.grouped(lambda level, n=name: _durations(level, n)):
                found[key].sketch(name).add(int(number), int(times))


def _durations(level: int, name: str) -> tuple[str, str, str, str] | None:
    if level != RECORD:
        return None
    value, condition = DURATION[name]
    bucket = (
        f"CASE WHEN {value} < {sketch.LEAST_MS} THEN 0 "
        f"ELSE CEILING(LN({value}) / {sketch.LOG_GAMMA!r}) - {sketch.OFFSET} END AS what"
    )
    return f"{bucket}, 1 AS number", "", "what, COUNT(*)", f"NOT {REFUSED} AND {condition}"
