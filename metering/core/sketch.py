"""Quantiles of durations that merge over any range: the DDSketch of Masson et al., VLDB 2019.

1. A quantile is within 1% of the true one (`ACCURACY`), however many sketches were merged.
2. A sketch is counts by bucket, and merging is adding; so a database can count the buckets of a
   minute by itself, which no sketch library's own store allows.
3. Bucket 0 holds what is under a microsecond; durations are milliseconds and never negative.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import ceil, exp, log

import msgspec

ACCURACY = 0.01
LEAST_MS = 0.001
LOG_GAMMA = log((1 + ACCURACY) / (1 - ACCURACY))
OFFSET = ceil(log(LEAST_MS) / LOG_GAMMA) - 1  # the bucket of LEAST_MS is number 1

_decode = msgspec.msgpack.Decoder(dict[int, int]).decode
_encode = msgspec.msgpack.Encoder().encode


def bucket(value_ms: float) -> int:
    return 0 if value_ms < LEAST_MS else ceil(log(value_ms) / LOG_GAMMA) - OFFSET


def pack(buckets: dict[int, int]) -> bytes:
    return _encode(dict(sorted(buckets.items()))) if buckets else b""


def merged(parts: Iterable[bytes]) -> dict[int, int]:
    """The buckets of packed sketches, all together. A list is quicker to add to than a dict."""
    decoded = [_decode(packed) for packed in parts if packed]
    if len(decoded) < 2:
        return decoded[0] if decoded else {}
    counts = [0] * (1 + max(max(buckets) for buckets in decoded))
    for buckets in decoded:
        for number, count in buckets.items():
            counts[number] += count
    return {number: count for number, count in enumerate(counts) if count}


def quantile(buckets: dict[int, int], q: float) -> float | None:
    """The value in ms below which the part `q` (0..1) lies; None when nothing was counted."""
    rank = q * (sum(buckets.values()) - 1)
    if rank < 0:
        return None
    for number in sorted(buckets):
        rank -= buckets[number]
        if rank < 0:
            return _middle(number)
    return _middle(max(buckets))


def _middle(number: int) -> float:
    """Of the values in a bucket, the one least far, relatively, from all of them."""
    if number == 0:
        return 0.0
    return 2 * exp((number + OFFSET) * LOG_GAMMA) / (1 + exp(LOG_GAMMA))
