"""When each key was used last, to the minute, from the roll-ups: nothing is written a request."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime

from metering.models import UsageMinute
from tenants.services import note_use


def note_keys(minutes: Sequence[datetime]) -> None:
    """Of minutes that have just been counted; one query to read, and few to write."""
    used: defaultdict[datetime, set[str]] = defaultdict(set)
    rows = UsageMinute.objects.filter(start__in=minutes).exclude(key="")
    for start, key in rows.order_by().values_list("start", "key").distinct():
        used[start].add(key)
    note_use(newest_only(used))


def newest_only(used: dict[datetime, set[str]]) -> dict[datetime, set[str]]:
    """Each key at its newest moment alone, so that a key is written once."""
    seen: set[str] = set()
    newest: dict[datetime, set[str]] = {}
    for at in sorted(used, reverse=True):
        newest[at] = used[at] - seen
        seen |= used[at]
    return newest
