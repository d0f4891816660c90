"""What every board has in common: its range and filters, and what they make of usage and of live
state. A board is put together from this; nothing below it reads a request."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from urllib.parse import urlencode

from django.utils.functional import cached_property  # functools' holds one lock for all boards

from metering.counting import Total, Totals
from metering.dashboards import charts, figures
from metering.dashboards.charts import Chart
from metering.dashboards.ranges import Grid, Span
from metering.history import FIELDS
from metering.live_history import Kind, Past, past
from metering.reading import Reading
from metering.selectors import Share, shares_of
from tenants.core.document import Document
from tenants.core.effective import weight_of

MOST = 12  # names in one chart; the others are one more
WAITS = ("queue_ms", "ttft_ms")


@dataclass(frozen=True, slots=True)
class Filters:
    """Empty: all."""

    tenant: str = ""
    lane: str = ""
    pool: str = ""

    @property
    def query(self) -> str:
        given = {name: getattr(self, name) for name in ("tenant", "lane", "pool")}
        return urlencode({name: value for name, value in given.items() if value})

    def __bool__(self) -> bool:
        return bool(self.tenant or self.lane or self.pool)


@dataclass(slots=True)
class Board:
    """What a page shows."""

    charts: list[Chart] = field(default_factory=list)
    context: dict[str, Any] = field(default_factory=dict)


class Watch:
    """One look at a range. Each of its questions is asked once, whatever its number of tenants."""

    def __init__(
        self,
        span: Span,
        filters: Filters,
        document: Document,
        at: datetime,
        sketches: Sequence[str] = WAITS,
    ) -> None:
        """`sketches`: the durations whose quantiles are told of each tenant."""
        self.span, self.filters, self.document, self.at = span, filters, document, at
        self.sketches = sketches
        self.reading = Reading(span.since, span.until)
        self.grid = Grid.of(span)
        self.ink = figures.Ink([tenant.name for tenant in document.tenants])
        self.pool_ink = figures.Ink([pool.model for pool in document.pools])
        self.lane_ink = figures.Ink([lane.name for lane in document.lanes])

    @property
    def query(self) -> str:
        return "&".join(part for part in (self.span.query, self.filters.query) if part)

    @cached_property
    def where(self) -> dict[str, str]:
        given = {
            "tenant": self.filters.tenant,
            "lane": self.filters.lane,
            "model": self.filters.pool,
        }
        return {name: value for name, value in given.items() if value}

    @cached_property
    def by_tenant(self) -> dict[str, Total]:
        """Over the whole range."""
        tallies = ("ends", "throttled")
        found = self.reading.totals(("tenant",), self.where, tallies, self.sketches)
        return {name: total for (name,), total in found.items()}

    @cached_property
    def shares(self) -> list[Share]:
        return shares_of(self.by_tenant)

    @cached_property
    def shown(self) -> list[str]:
        """Those with the largest cost, so many that a chart bears them."""
        return [share.name for share in self.shares[:MOST]]

    @cached_property
    def weights(self) -> dict[str, float]:
        tiers = {tier.name: tier for tier in self.document.tiers}
        return {each.name: weight_of(each, tiers[each.tier]) for each in self.document.tenants}

    def series(self, by: Sequence[str], **asked: Any) -> Totals:
        return self.reading.series(
            self.span.edges, by, self.where | asked.pop("where", {}), **asked
        )

    @cached_property
    def queues(self) -> Mapping[tuple[int, tuple[str, ...]], Past]:
        """Each tenant in each lane of each pool, step by step."""
        fields = ("observed_s", "queued_s", "waiting_s", "served", "weight", "debt")
        return self.past("tenant", "pool", "lane", "tenant", fields=fields)

    def past(
        self, kind: Kind, *by: str, fields: Sequence[str] = FIELDS
    ) -> Mapping[tuple[int, tuple[str, ...]], Past]:
        names = ("pool",) if kind == "pool" else ("pool", "lane")
        names = (*names, "tenant") if kind == "tenant" else names
        where = {name: getattr(self.filters, name) for name in names}
        return past(self.span.edges, kind, by, where, fields)

    def rows(
        self,
        found: Mapping[tuple[int, tuple[str, ...]], Any],
        value: Callable[[Any], float | None],
        empty: float | None = 0.0,
        shown: Sequence[str] | None = None,
    ) -> dict[str, list[float | None]]:
        """A row a name of one-field groups; names that are not `shown` are one row together."""
        return self.grid.rows(
            (
                (place, name if shown is None or name in shown else figures.OTHERS, value(each))
                for (place, (name,)), each in found.items()
            ),
            empty,
        )

    def over_time(
        self,
        name: str,
        title: str,
        values: Mapping[str, figures.Values],
        figure: figures.Figure,
        note: str = "",
        **more: Any,
    ) -> Chart:
        """A chart whose CSV has a row a step and a column a name."""
        header, rows = charts.by_time(self.grid.times, values)
        return Chart(name, title, figure, header, rows, note, **more)
