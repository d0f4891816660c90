"""A chart as a page shows it: a figure to draw, and its numbers as rows for CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from django.http import Http404, HttpResponse

from metering.dashboards.figures import Figure, Values
from tenants.core.text import no_formula

Cell = str | float | int | None


@dataclass(frozen=True, slots=True)
class Chart:
    """`header` and `rows` are what the CSV holds: the amounts, not what is drawn of them."""

    name: str
    title: str
    figure: Figure
    header: Sequence[str] = ()
    rows: Sequence[Sequence[Cell]] = field(default_factory=list)
    note: str = ""
    empty: str = "Choose a longer range; a minute that still runs is drawn once it is over."
    wide: bool = False

    @property
    def figure_id(self) -> str:
        return f"figure-{self.name}"


def by_time(
    times: Sequence[datetime], values: Mapping[str, Values]
) -> tuple[list[str], list[list[Cell]]]:
    """A row a step, a column a name; times in UTC."""
    rows: list[list[Cell]] = [
        [f"{at.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}", *(row[place] for row in values.values())]
        for place, at in enumerate(times)
    ]
    return ["at", *values], rows


def csv_named(charts: Iterable[Chart], name: str, file: str) -> HttpResponse:
    """Of the chart that is called so.

    Raises:
        Http404: there is none.
    """
    for chart in charts:
        if chart.name == name:
            return as_csv(chart, file)
    raise Http404


def as_csv(chart: Chart, file: str) -> HttpResponse:
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerows([_plain(cell) for cell in row] for row in (chart.header, *chart.rows))
    response = HttpResponse(buffer.getvalue(), content_type="text/csv; charset=utf-8")
    response["Content-Disposition"] = f'attachment; filename="{file}-{chart.name}.csv"'
    return response


def _plain(cell: Cell) -> Cell:
    """Whole numbers without their .0; a text that a spreadsheet would run is made harmless."""
    if isinstance(cell, float) and cell.is_integer():
        return int(cell)
    return no_formula(cell) if isinstance(cell, str) else cell
