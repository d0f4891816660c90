"""Quantiles of durations that merge over any range: the DDSketch of Masson et al., VLDB 2019.

1. A quantile is within 1% of the true one (`ACCURACY`), however many sketches were merged.
2. A sketch is counts by bucket, and merging is adding; so a database can count the buckets of a
   minute by itself, which no sketch library's own store allows.
3. Bucket 0 holds what is under a microsecond; durations are milliseconds and never negative.
4. Packed it is one of two: few buckets are a msgpack map, many are lanes, one count after the other
   from the first bucket on. Lanes are added as one large number, in a tenth of the time that maps
   take: a long range is thousands of sketches.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, chain
from math import ceil, exp, log
from operator import add
from struct import Struct, pack, unpack, unpack_from

import msgspec

ACCURACY = 0.01
LEAST_MS = 0.001
LOG_GAMMA = log((1 + ACCURACY) / (1 - ACCURACY))
OFFSET = ceil(log(LEAST_MS) / LOG_GAMMA) - 1  # the bucket of LEAST_MS is number 1

LANES = 0xC1  # the first byte of a sketch in lanes; no msgpack begins so
HEAD = Struct("<BBH")  # LANES, the bytes of a count, the first bucket
LETTER = {1: "B", 2: "H", 4: "I", 8: "Q"}  # struct's, by bytes
WIDTHS = (1, 2, 4)  # a lane of twice the bytes holds sums
ROOM = 1.5  # times that of a map is what lanes may take: they are added so much faster
AT_ONCE = 255  # so many of them: then even lanes that were full everywhere fit

_decode = msgspec.msgpack.Decoder(dict[int, int]).decode
_encode = msgspec.msgpack.Encoder().encode


def bucket(value_ms: float) -> int:
    return 0 if value_ms < LEAST_MS else ceil(log(value_ms) / LOG_GAMMA) - OFFSET


class Sketch:
    """The counts of neighbouring buckets, from `first` on; some may be 0."""

    __slots__ = ("counts", "first")

    def __init__(self, first: int = 0, counts: Iterable[int] = ()) -> None:
        self.first, self.counts = first, list(counts)

    @classmethod
    def of(cls, *maps: Mapping[int, int]) -> Sketch:
        """All of these counts by bucket together."""
        kept = [each for each in maps if each]
        if not kept:
            return cls()
        first = min(map(min, kept))
        counts = [0] * (max(map(max, kept)) + 1 - first)
        for buckets in kept:
            for number, count in buckets.items():
                counts[number - first] += count
        return cls(first, counts)

    @property
    def buckets(self) -> dict[int, int]:
        return {number: count for number, count in enumerate(self.counts, self.first) if count}

    def add(self, number: int, count: int = 1) -> None:
        self._reach(number, number + 1)
        self.counts[number - self.first] += count

    def update(self, other: Sketch) -> None:
        if not other.counts:
            return
        if not self.counts:
            self.first, self.counts = other.first, other.counts.copy()
            return
        self._reach(other.first, other.first + len(other.counts))
        start = other.first - self.first
        place = slice(start, start + len(other.counts))
        self.counts[place] = map(add, self.counts[place], other.counts)

    def quantile(self, q: float) -> float | None:
        """The value in ms below which the part `q` (0..1) lies; None when nothing was counted."""
        reached = list(accumulate(self.counts))
        if not reached or not reached[-1]:
            return None
        return _middle(self.first + bisect_right(reached, q * (reached[-1] - 1)))

    def pack(self) -> bytes:
        """The same counts are always the same bytes."""
        buckets = self.buckets
        if not buckets:
            return b""
        first, last = min(buckets), max(buckets)
        counts = self.counts[first - self.first : last + 1 - self.first]
        sparse = _encode(buckets)
        width = next((w for w in WIDTHS if max(counts) < 256**w), 0)
        if not width or HEAD.size + width * len(counts) > ROOM * len(sparse):
            return sparse
        return HEAD.pack(LANES, width, first) + pack(f"<{len(counts)}{LETTER[width]}", *counts)

    def _reach(self, first: int, end: int) -> None:
        """Have a count for each of these buckets."""
        if not self.counts:
            self.first = first
        if first < self.first:
            self.counts[:0] = [0] * (self.first - first)
            self.first = first
        self.counts += [0] * (end - self.first - len(self.counts))


def merged(parts: Iterable[bytes]) -> Sketch:
    """Packed sketches, all together."""
    lanes: dict[int, list[bytes]] = defaultdict(list)
    maps: list[dict[int, int]] = []
    for packed in parts:
        if packed[:1] == b"\xc1":
            lanes[packed[1]].append(packed)
        elif packed:
            maps.append(_decode(packed))
    found = Sketch.of(*maps)
    for width, those in lanes.items():
        for each in _added(those, width):
            found.update(each)
    return found


def _added(parts: Sequence[bytes], width: int) -> Iterator[Sketch]:
    """Each lane's neighbour is masked away, so that a sum may grow into its place: even lanes and
    odd ones are summed apart."""
    bits, wide = 8 * width, LETTER[2 * width]
    for at in range(0, len(parts), AT_ONCE):
        runs = [(HEAD.unpack_from(each)[2], each) for each in parts[at : at + AT_ONCE]]
        low = min(first for first, _ in runs)
        if len(runs) == 1:
            size = (len(runs[0][1]) - HEAD.size) // width
            yield Sketch(low, unpack_from(f"<{size}{LETTER[width]}", runs[0][1], HEAD.size))
            continue
        places = max(first - low + (len(each) - HEAD.size) // width for first, each in runs)
        half = ceil(places / 2)
        mask = int.from_bytes((b"\xff" * width + b"\0" * width) * half, "little")
        even = odd = 0
        for first, each in runs:
            value = int.from_bytes(each[HEAD.size :], "little") << (first - low) * bits
            even += value & mask
            odd += value >> bits & mask
        sums = (s.to_bytes(2 * width * half, "little") for s in (even, odd))
        evens, odds = (unpack(f"<{half}{wide}", each) for each in sums)
        yield Sketch(low, chain.from_iterable(zip(evens, odds, strict=True)))


def _middle(number: int) -> float:
    """Of the values in a bucket, the one least far, relatively, from all of them."""
    if number == 0:
        return 0.0
    return 2 * exp((number + OFFSET) * LOG_GAMMA) / (1 + exp(LOG_GAMMA))
