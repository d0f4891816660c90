"""Plotly figures as plain dicts, drawn in the browser by static/charts.js.

1. A figure holds no colour of the page: charts.js adds text, grid and ground, light or dark.
2. A tenant has one colour and one dash everywhere, from its place in the policy's row order.
3. The palette keeps 3:1 contrast on both grounds, and its members stay apart for viewers with
   deuteranopia and protanopia (Machado 2009, CIE76 distance of 19 or more).
4. An axis is in one unit that fits what is drawn: ms or s or min, never "50µ s".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from django.utils.timezone import localtime

Figure = dict[str, Any]
Values = Sequence[float | None]

PALETTE = (
    "#135fed",
    "#b08b10",
    "#c7107e",
    "#25a1b4",
    "#5c732a",
    "#df5b77",
    "#4d91fa",
    "#1e8ac7",
)
OTHERS = "(others)"
GREY = "#808a96"
FARTHEST_BOUND = 8  # times the largest debt, at which a bound is still drawn
DASHES = ("solid", "dot", "dash", "longdash")
DURATIONS = ((1_000.0, 1.0, "ms"), (120_000.0, 1e-3, "s"), (float("inf"), 1 / 60_000, "min"))


class Ink:
    """The look of each name, by its place in a stable order of names."""

    def __init__(self, names: Sequence[str]) -> None:
        self._place = {name: place for place, name in enumerate(names)}

    def place(self, name: str) -> int:
        return self._place.get(name, len(self._place))

    def colour(self, name: str) -> str:
        return GREY if name == OTHERS else PALETTE[self.place(name) % len(PALETTE)]

    def dash(self, name: str) -> str:
        return DASHES[self.place(name) // len(PALETTE) % len(DASHES)]

    def order(self, names: Iterable[str]) -> list[str]:
        return sorted(names, key=lambda name: (name == OTHERS, self.place(name), name))


def stacked(
    times: Sequence[datetime], values: Mapping[str, Values], ink: Ink, unit: str, percent: bool
) -> Figure:
    """Amounts on top of each other; with `percent`, each moment adds up to 100."""
    data = []
    tops = [sum(v or 0.0 for v in step) for step in zip(*values.values(), strict=False)]
    for name in ink.order(values):
        trace = _trace(name, times, values[name], ink)
        trace |= {"stackgroup": "all", "mode": "none", "fillcolor": ink.colour(name)}
        trace["hovertemplate"] = "%{y:.1f}%" if percent else f"%{{y:{plain(tops)}}} {unit}"
        if percent:
            trace["groupnorm"] = "percent"
        data.append(trace)
    axis = {"ticksuffix": "%", "range": [0, 100]} if percent else amounts(tops)
    return {"data": data if any(tops) else [], "layout": _layout(times, axis)}


def lines(
    times: Sequence[datetime],
    values: Mapping[str, Values],
    ink: Ink,
    unit: str = "",
    most: float | None = None,
) -> Figure:
    """`unit` stands behind each figure; `most` is where the axis ends at least."""
    data = []
    shown = [value for row in values.values() for value in row if value is not None]
    for name in ink.order(values):
        trace = _trace(name, times, values[name], ink)
        trace |= {"mode": _mode(values[name]), "marker": {"size": 4}, "connectgaps": False}
        trace["line"] = {"color": ink.colour(name), "dash": ink.dash(name), "width": 1.8}
        trace["hovertemplate"] = f"%{{y:{plain(shown)}}}{_spaced(unit)}"
        data.append(trace)
    axis = amounts(shown) | {"ticksuffix": _spaced(unit)}
    if most is not None:
        axis["range"] = [0, max([most, *(value * 1.05 for value in shown)])]
    return {"data": data if shown else [], "layout": _layout(times, axis)}


def durations(times: Sequence[datetime], values: Mapping[str, Values], ink: Ink) -> Figure:
    """As `lines`; milliseconds in, in the unit that fits the largest."""
    scale, unit = duration_unit(value for row in values.values() for value in row)
    scaled = {name: _scaled(row, scale) for name, row in values.items()}
    return lines(times, scaled, ink, unit)


def duration_unit(values: Iterable[float | None]) -> tuple[float, str]:
    largest = max((value for value in values if value is not None), default=0.0)
    return next((scale, unit) for below, scale, unit in DURATIONS if largest < below)


def bars(names: Sequence[str], values: Values, ink: Ink, unit: str) -> Figure:
    """One lying bar a name, in the order given, first on top."""
    trace = _bar(names, values)
    trace["marker"] = {"color": [ink.colour(name) for name in names]}
    shown = [value for value in values if value is not None]
    trace["hovertemplate"] = f"%{{y}}: %{{x:{plain(shown)}}}{_spaced(unit)}<extra></extra>"
    return {"data": [trace] if any(shown) else [], "layout": _lying(shown, unit)}


def duration_bars(names: Sequence[str], values: Values, ink: Ink) -> Figure:
    scale, unit = duration_unit(values)
    return bars(names, _scaled(values, scale), ink, unit)


def pairs(names: Sequence[str], values: Mapping[str, Values], ink: Ink, unit: str = "%") -> Figure:
    """For each name a filled bar and beside it an outlined one: what is, and what should be."""
    (first, is_), (second, should) = values.items()
    colours = [ink.colour(name) for name in names]
    full, hollow = _bar(names, is_), _bar(names, should)
    full |= {"name": first, "marker": {"color": colours}}
    hollow |= {"name": second, "marker": {"color": "rgba(128,138,150,0.28)"}}
    hollow["marker"]["line"] = {"color": colours, "width": 1.6}
    for trace in (full, hollow):
        trace["hovertemplate"] = (
            f"%{{y}}, {trace['name']}: %{{x:.1f}}{_spaced(unit)}<extra></extra>"
        )
    shown = [value for row in values.values() for value in row if value]
    layout = _lying(shown, unit) | {"barmode": "group", "bargap": 0.3, "bargroupgap": 0.08}
    return {"data": [full, hollow] if shown else [], "layout": layout}


def debts(
    times: Sequence[datetime], values: Mapping[str, Values], ink: Ink, bound: float
) -> Figure:
    """What each tenant is owed (above zero) or ahead, with the bound drawn on both sides, or only
    named where drawing it would flatten everything else."""
    figure = lines(times, values, ink, "")
    peak = max((abs(v) for series in values.values() for v in series if v is not None), default=0)
    axis = amounts([peak]) | {"rangemode": "normal", "zeroline": True, "ticksuffix": ""}
    figure["layout"]["yaxis"] = axis
    for trace in figure["data"]:
        trace["hovertemplate"] = "%{y:,.0f} units"
    if figure["data"] and bound > FARTHEST_BOUND * peak > 0:
        axis["range"] = [-1.3 * peak, 1.3 * peak]
        text = f"bound ±{bound:,.0f}, off this scale"
        figure["layout"]["annotations"] = [_note(1.3 * peak, text, "top")]
    elif figure["data"] and bound > 0:
        figure["layout"]["shapes"] = [_level(bound), _level(-bound)]
        figure["layout"]["annotations"] = [_note(bound, "bound"), _note(-bound, "bound")]
    return figure


def held(
    times: Sequence[datetime],
    served: Mapping[str, Values],
    waiting: Values,
    who: str,
    ink: Ink,
) -> Figure:
    """What each tenant was given, stacked, and how many requests of `who` waited, as a line."""
    figure = stacked(times, served, ink, "units a minute", percent=False)
    line = _trace(f"{who} waiting", times, waiting, ink)
    line |= {"mode": "lines", "yaxis": "y2", "line": {"width": 2.4, "dash": "dot"}, "meta": "text"}
    shown = [value for value in waiting if value is not None]
    line["hovertemplate"] = f"%{{y:{plain(shown)}}} requests"
    figure["layout"]["yaxis2"] = amounts(shown) | {
        "overlaying": "y",
        "side": "right",
        "tickmode": "auto",
        "nticks": 5,
        "showgrid": False,
        "title": {"text": "waiting", "standoff": 6},
    }
    figure["layout"]["margin"] |= {"r": 48}
    if figure["data"] or any(shown):
        figure["data"].append(line)
    return figure


def with_legend(figure: Figure) -> Figure:
    """For a chart whose names are not in the page's own legend."""
    figure["layout"] |= {"showlegend": True}
    figure["layout"]["legend"] = {
        "orientation": "h",
        "y": 1.02,
        "yanchor": "bottom",
        "traceorder": "normal",
    }
    return figure


def amounts(values: Iterable[float]) -> Figure:
    """An axis from zero whose figures are short and never in thousandths' letters."""
    largest = max((abs(value) for value in values), default=0.0)
    axis: Figure = {"rangemode": "tozero", "exponentformat": "none"}
    axis["tickformat"] = "~s" if largest >= 10_000 else ",.4~r"
    if not largest:
        axis["range"] = [0, 1]
    return axis


def plain(values: Iterable[float]) -> str:
    """The format of a figure that is read, not glanced at: no powers of ten, no thousandths."""
    largest = max((abs(value) for value in values), default=0.0)
    return ",.0f" if largest >= 1_000 else ",.1~f" if largest >= 10 else ",.3~r"


def _scaled(values: Values, scale: float) -> list[float | None]:
    return [None if value is None else value * scale for value in values]


def _spaced(unit: str) -> str:
    return f" {unit}" if unit and unit != "%" else unit


def _mode(values: Values) -> str:
    """A point alone would not be seen without its mark."""
    known = sum(value is not None for value in values)
    return "lines+markers" if known <= 24 else "lines"


def _bar(names: Sequence[str], values: Values) -> Figure:
    return {"type": "bar", "orientation": "h", "x": list(values), "y": list(names)}


def _lying(values: Iterable[float], unit: str) -> Figure:
    layout = _layout((), {"autorange": "reversed", "type": "category"})
    layout |= {"hovermode": "closest", "bargap": 0.35}
    layout["xaxis"] = amounts(values) | {"ticksuffix": _spaced(unit), "nticks": 6}
    return layout


def _trace(name: str, times: Sequence[datetime], values: Values, ink: Ink) -> Figure:
    return {
        "type": "scatter",
        "name": name,
        "x": _stamps(times),
        "y": list(values),
        "line": {"color": ink.colour(name)},
    }


def _stamps(times: Sequence[datetime]) -> list[str]:
    """Plotly knows no zones: what it gets is the viewer's clock."""
    return [localtime(at).strftime("%Y-%m-%dT%H:%M:%S") for at in times]


def _layout(times: Sequence[datetime], yaxis: Figure) -> Figure:
    xaxis: Figure = {"type": "date", "hoverformat": "%d %b %H:%M", "nticks": 6, "tickangle": 0}
    if len(times) > 1:
        xaxis["range"] = _stamps((times[0], times[-1]))
    return {
        "margin": {"l": 52, "r": 14, "t": 8, "b": 30},
        "hovermode": "x unified",
        "showlegend": False,  # one legend above the charts serves them all
        "xaxis": xaxis,
        "yaxis": yaxis,
    }


def _level(value: float) -> Figure:
    line = {"dash": "dash", "width": 1.2}
    return {
        "type": "line",
        "xref": "paper",
        "x0": 0,
        "x1": 1,
        "y0": value,
        "y1": value,
        "line": line,
    }


def _note(value: float, text: str, anchor: str = "") -> Figure:
    place = {"xref": "paper", "x": 1, "xanchor": "right", "y": value}
    place["yanchor"] = anchor or ("bottom" if value > 0 else "top")
    return {**place, "showarrow": False, "text": text}
