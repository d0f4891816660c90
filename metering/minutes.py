"""Usage by the minute: rolled up where it is, counted on the spot where it is not yet."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from metering.core import sketch
from metering.models import TouchedMinute, UsageMinute
from metering.rollup import GROUP, SKETCHES, SUMS, count_minute

FRESH_MINUTES = 3  # at most so many are counted from raw rows; the rest waits for its roll-up

Minute = dict[str, Any]  # a UsageMinute's fields by name, sketches only where asked for


def whole_minute(at: datetime) -> datetime:
    return at.replace(second=0, microsecond=0)


def minutes(
    since: datetime, until: datetime, tenant: str | None = None, durations: bool = False
) -> Iterator[Minute]:
    fields = ("minute", *GROUP, *SUMS, "throttled", *(SKETCHES if durations else ()))
    rows = UsageMinute.objects.filter(minute__gte=whole_minute(since), minute__lt=until)
    if tenant is not None:
        rows = rows.filter(tenant=tenant)
    fresh = _touched(since, until)
    yield from rows.exclude(minute__in=fresh).values(*fields).iterator(chunk_size=2000)
    for minute in fresh:
        for counted in count_minute(minute, tenant, durations):
            yield {name: getattr(counted, name) for name in fields}


def _touched(since: datetime, until: datetime) -> list[datetime]:
    touched = TouchedMinute.objects.filter(minute__gte=whole_minute(since), minute__lt=until)
    newest = touched.order_by("-minute").values_list("minute", flat=True).distinct()
    return list(newest[:FRESH_MINUTES])


class Total:
    """What minutes add up to."""

    def __init__(self) -> None:
        self.sums: defaultdict[str, float] = defaultdict(float)
        self.throttled: Counter[str] = Counter()
        self._durations = {name: Counter[int]() for name in SKETCHES}

    @property
    def tokens(self) -> int:
        return int(self.sums["prompt_tokens"] + self.sums["completion_tokens"])

    def add(self, minute: Minute) -> None:
        for name in SUMS:
            self.sums[name] += minute[name]
        self.throttled.update(minute["throttled"])
        for name in SKETCHES:
            if name in minute:
                sketch.merge_into(self._durations[name], bytes(minute[name]))

    def quantile(self, name: str, q: float) -> float | None:
        """Milliseconds; None where nothing was measured. `name`: queue_ms, ttft_ms, e2e_ms."""
        return sketch.quantile(self._durations[name], q)
