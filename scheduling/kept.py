"""The virtual counters of pools, as they are kept in the database while Redis has them."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from scheduling.models import PoolCounters
from scheduling.shared.keeping import Kept


class Found(NamedTuple):
    at: datetime
    kept: Kept


def save(pool: str, kept: Kept, at: datetime) -> None:
    """In the place of those that were kept before."""
    given = {"at": at, "lanes": kept.lanes, "open": dict(kept.open)}
    PoolCounters.objects.update_or_create(pool=pool, defaults=given)


def find(pool: str, since: datetime) -> Found | None:
    """The pool's latest, unless they are older than `since`."""
    row = PoolCounters.objects.filter(pool=pool, at__gte=since).first()
    return None if row is None else Found(row.at, Kept(row.lanes, row.open))
