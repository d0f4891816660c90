"""Usage for pages: rolled up where it is, counted on the spot where it is not yet.

A range is widened to whole minutes, and where minutes are no longer kept, to whole quarters.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from django.db.models import Model

from metering.core.cover import MINUTE, QUARTER, Piece, cover, stale_above
from metering.counting import Group, Total, Totals, Where, count
from metering.models_rollup import TouchedMinute, TouchedQuarter
from metering.rollup import floor, oldest_minute

FRESH_MINUTES = 3  # at most so many are counted from records; the rest waits for its roll-up


class Reading:
    """One look at usage: what waits to be counted is looked up once, for all its questions."""

    def __init__(self, since: datetime, until: datetime) -> None:
        self.since, self.until = floor(since, MINUTE), until
        minutes = self._marks(TouchedMinute, "minute", self.since)
        quarters = self._marks(TouchedQuarter, "quarter", self.since - timedelta(days=1))
        self._stale = stale_above(minutes, quarters, minutes[:FRESH_MINUTES])

    def series(
        self,
        edges: Sequence[datetime],
        by: Sequence[str],
        where: Where | None = None,
        tallies: Sequence[str] = (),
        sketches: Sequence[str] = (),
    ) -> Totals:
        """By (n, group): what the group used from `edges[n]` to before `edges[n + 1]`."""
        return count(self._pieces(edges), by, where, tallies, sketches)

    def totals(
        self,
        by: Sequence[str],
        where: Where | None = None,
        tallies: Sequence[str] = (),
        sketches: Sequence[str] = (),
    ) -> dict[Group, Total]:
        """By group, over the whole range."""
        found = self.series((self.since, self.until), by, where, tallies, sketches)
        return {group: total for (_, group), total in found.items()}

    def _pieces(self, edges: Sequence[datetime]) -> list[Piece]:
        """The first edge is rounded down and the last one up, those between down."""
        oldest = oldest_minute(datetime.now(UTC))
        steps = [MINUTE if edge >= oldest else QUARTER for edge in edges]
        seconds = [_floor(edge.timestamp(), step) for edge, step in zip(edges, steps, strict=True)]
        seconds[-1] = -_floor(-edges[-1].timestamp(), steps[-1])
        return cover(seconds, self._stale)

    def _marks(self, model: type[Model], field: str, since: datetime) -> list[int]:
        """Newest first."""
        found = model._default_manager.filter(
            **{f"{field}__gte": since, f"{field}__lt": self.until}
        )
        moments = found.order_by(f"-{field}").values_list(field, flat=True).distinct()
        return [int(moment.timestamp()) for moment in moments]


def _floor(seconds: float, step: int) -> int:
    return int(seconds // step * step)
