"""Plotly figures as plain dicts, drawn in the browser by static/charts.js.

1. A figure holds no colour of the page: charts.js adds text, grid and ground, light or dark.
2. A tenant has one colour and one dash everywhere, from its place in the policy's row order.
3. The palette keeps 3:1 contrast on both grounds, and its members stay apart for viewers with
   deuteranopia and protanopia (Machado 2009, CIE76 distance of 19 or more).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

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
OWN_LEGEND = {"showlegend": True, "legend": {"orientation": "h", "y": 1.02, "yanchor": "bottom"}}
FARTHEST_BOUND = 8  # times the largest debt, at which a bound is still drawn
DASHES = ("solid", "dot", "dash", "longdash")


class Ink:
    """The look of each tenant, by its place in a stable order of names."""

    def __init__(self, names: Sequence[str]) -> None:
        self._place = {name: place for place, name in enumerate(names)}

    def place(self, tenant: str) -> int:
        return self._place.get(tenant, len(self._place))

    def colour(self, tenant: str) -> str:
        return PALETTE[self.place(tenant) % len(PALETTE)]

    def dash(self, tenant: str) -> str:
        return DASHES[self.place(tenant) // len(PALETTE) % len(DASHES)]


def stacked(
    times: Sequence[datetime], values: Mapping[str, Values], ink: Ink, unit: str, percent: bool
) -> Figure:
    """Amounts on top of each other; with `percent`, each moment adds up to 100."""
    data = []
    for tenant in sorted(values, key=ink.place):
        trace = _trace(tenant, times, values[tenant], ink)
        trace |= {"stackgroup": "all", "mode": "none", "fillcolor": ink.colour(tenant)}
        trace["hovertemplate"] = "%{y:.1f}%" if percent else f"%{{y:,.0f}} {unit}"
        if percent:
            trace["groupnorm"] = "percent"
        data.append(trace)
    axis = {"ticksuffix": "%", "range": [0, 100]} if percent else {"rangemode": "tozero"}
    return {"data": data, "layout": _layout(times, axis)}


def lines(times: Sequence[datetime], values: Mapping[str, Values], ink: Ink, suffix: str) -> Figure:
    data = []
    for tenant in sorted(values, key=ink.place):
        trace = _trace(tenant, times, values[tenant], ink)
        trace |= {"mode": "lines+markers", "marker": {"size": 4}, "connectgaps": False}
        trace["line"] = {"color": ink.colour(tenant), "dash": ink.dash(tenant), "width": 1.8}
        trace["hovertemplate"] = f"%{{y:,.1f}}{suffix}"
        data.append(trace)
    return {"data": data, "layout": _layout(times, {"ticksuffix": suffix, "rangemode": "tozero"})}


def bars(names: Sequence[str], values: Values, ink: Ink, suffix: str) -> Figure:
    """One lying bar a tenant, in the order given, first on top."""
    trace: Figure = {"type": "bar", "orientation": "h", "x": list(values), "y": list(names)}
    trace["marker"] = {"color": [ink.colour(name) for name in names]}
    trace["hovertemplate"] = f"%{{y}}: %{{x:,.2f}}{suffix}<extra></extra>"
    layout = _layout((), {"autorange": "reversed", "type": "category"})
    layout |= {"hovermode": "closest", "bargap": 0.35}
    layout["xaxis"] = {"ticksuffix": suffix, "rangemode": "tozero"}
    shown = [value for value in values if value is not None]
    return {"data": [trace] if shown else [], "layout": layout}


def reasons(counts: Mapping[str, Mapping[str, int]], ink: Ink) -> Figure:
    """Lying bars, one a reason (`counts[reason][tenant]`), the tenants in it side by side."""
    tenants = sorted({name for by in counts.values() for name in by}, key=ink.place)
    data = [_reason_trace(tenant, counts, ink) for tenant in tenants]
    layout = _layout((), {"autorange": "reversed", "type": "category"})
    layout |= {"hovermode": "closest", "bargap": 0.35, "barmode": "stack"}
    layout["xaxis"] = {"rangemode": "tozero"}
    return {"data": data, "layout": layout}


def _reason_trace(tenant: str, counts: Mapping[str, Mapping[str, int]], ink: Ink) -> Figure:
    return {
        "type": "bar",
        "orientation": "h",
        "name": tenant,
        "y": list(counts),
        "x": [by.get(tenant, 0) for by in counts.values()],
        "marker": {"color": ink.colour(tenant)},
        "hovertemplate": "%{y}: %{x:,} refused",
    }


def debts(
    times: Sequence[datetime], values: Mapping[str, Values], ink: Ink, bound: float
) -> Figure:
    """What each tenant is owed (above zero) or ahead, with the bound drawn on both sides, or only
    named where drawing it would flatten everything else."""
    figure = lines(times, values, ink, "")
    figure["layout"]["yaxis"] = {"rangemode": "normal", "tickformat": "~s", "zeroline": True}
    for trace in figure["data"]:
        trace["hovertemplate"] = "%{y:,.0f} units"
        trace["mode"] = "lines"
    peak = max((abs(v) for series in values.values() for v in series if v is not None), default=0)
    if figure["data"] and bound > FARTHEST_BOUND * peak > 0:
        figure["layout"]["yaxis"]["range"] = [-1.3 * peak, 1.3 * peak]
        text = f"bound ±{bound:,.0f}, off this scale"
        figure["layout"]["annotations"] = [_note(1.3 * peak, text, "top")]
    elif figure["data"] and bound > 0:
        figure["layout"]["shapes"] = [_level(bound), _level(-bound)]
        figure["layout"]["annotations"] = [_note(bound, "bound"), _note(-bound, "bound")]
    return figure


def _trace(tenant: str, times: Sequence[datetime], values: Values, ink: Ink) -> Figure:
    return {
        "type": "scatter",
        "name": tenant,
        "x": [at.strftime("%Y-%m-%dT%H:%M:%S") for at in times],
        "y": list(values),
        "line": {"color": ink.colour(tenant)},
    }


def _layout(times: Sequence[datetime], yaxis: Figure) -> Figure:
    xaxis: Figure = {"type": "date", "hoverformat": "%d %b %H:%M UTC"}
    xaxis |= {"nticks": 6, "tickangle": 0}
    if times:
        stamps = [at.strftime("%Y-%m-%dT%H:%M:%S") for at in (times[0], times[-1])]
        xaxis["range"] = stamps
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
