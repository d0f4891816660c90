"""Which roll-ups, and which raw records, together are exactly one range of time.

1. Every moment of every bucket is in one piece, and no moment of another is; so sums over the
   pieces are sums over the records, whatever the zone whose days the buckets are.
2. The longest slots that fit are taken: a quarter of an hour divides every zone's offset, so a
   day anywhere is made of whole hours and at most six quarters.
3. A slot that is not counted yet is made of shorter ones; a minute, of the records themselves.

Times are whole seconds since the epoch. UTC has no change of clocks, so all slots are equally long.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

RECORD, MINUTE, QUARTER, HOUR, DAY = 1, 60, 900, 3600, 86_400
LEVELS = (MINUTE, QUARTER, HOUR, DAY)

Stale = Mapping[int, Collection[int]]  # level -> starts of slots that are not to be used


@dataclass(frozen=True, slots=True)
class Piece:
    """A stretch of slots of one level, or of records, inside one bucket."""

    level: int
    bucket: int
    since: int
    until: int


def cover(
    edges: Sequence[int], stale: Stale | None = None, levels: Sequence[int] = LEVELS
) -> list[Piece]:
    """Bucket n is from `edges[n]` to before `edges[n + 1]`, each a multiple of the shortest
    level."""
    pieces: list[Piece] = []
    for bucket in range(len(edges) - 1):
        since, until = edges[bucket], edges[bucket + 1]
        for level, start, end in _parts(since, until, stale or {}, levels):
            pieces.append(Piece(level, bucket, start, end))
    return pieces


def stale_above(
    minutes: Collection[int], quarters: Collection[int], fresh: Collection[int]
) -> dict[int, set[int]]:
    """What must not be used where these minutes and quarters wait to be counted. Only the `fresh`
    minutes are read from records; the others show what they had at their last count."""
    within = {start // QUARTER * QUARTER for start in (*minutes, *quarters)}
    stale = {MINUTE: set(fresh), QUARTER: within}
    for level in (HOUR, DAY):
        stale[level] = {start // level * level for start in within}
    return stale


def _parts(
    since: int, until: int, stale: Stale, levels: Sequence[int]
) -> Iterator[tuple[int, int, int]]:
    if since >= until:
        return
    if not levels:
        yield RECORD, since, until
        return
    *shorter, level = levels
    first, last = -(-since // level) * level, until // level * level
    if first >= last:
        yield from _parts(since, until, stale, shorter)
        return
    yield from _parts(since, first, stale, shorter)
    holes = sorted(start for start in stale.get(level, ()) if first <= start < last)
    for hole in holes:
        if first < hole:
            yield level, first, hole
        yield from _parts(hole, hole + level, stale, shorter)
        first = hole + level
    if first < last:
        yield level, first, last
    yield from _parts(last, until, stale, shorter)
