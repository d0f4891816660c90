"""Results as one HTML page that needs no network: plotly.js is part of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from html import escape

from plotly.graph_objects import Bar, Figure, Scatter
from plotly.io import to_html

from scheduling.simulate import table
from scheduling.simulate.figures import Result
from scheduling.simulate.trace import Trace

DRAWN = 12  # tenants, those with most service first: more lines than that tell nothing
DASHES = ("solid", "dot", "dash", "longdash")  # one for each round of the ten colours
STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 75rem; margin: 2rem auto; padding: 0 1rem }
table { border-collapse: collapse; display: block; overflow-x: auto; font-size: 13px }
th, td { padding: .3rem .6rem; text-align: right; border-bottom: 1px solid #ddd }
th:first-child, td:first-child { text-align: left; white-space: nowrap }
figure { margin: 2rem 0 }
figcaption { color: #555 }
"""
CAPTIONS = {
    "service": "Service that each tenant received, in service units. Parallel lines: equal shares.",
    "gap": "Accumulated gap: how far the two tenants furthest apart have drifted since both began "
    "to wait, in service units by weight. The dashed line is 2U, which fair queueing keeps under.",
    "queue": "Time in the queue of the requests that were served.",
    "jain": "Jain's index of the shares of tenants that waited all the time: 1 is equal by weight.",
    "engines": "Engines while requests came: computing, sequences in use, KV cache in use.",
}


def page(trace: Trace, results: Sequence[Result]) -> str:
    return "\n".join(_page(trace, results))


def figures(results: Sequence[Result]) -> dict[str, Figure]:
    """The report's charts, by the names of CAPTIONS. Service is the first result's."""
    return {
        "service": service(results[0]),
        "gap": gaps(results),
        "queue": queue_times(results),
        "jain": jain(results),
        "engines": engines(results),
    }


def service(result: Result) -> Figure:
    totals = sorted(result.tenants, key=lambda tenant: -tenant.service_units)
    series = result.series
    lines = [
        Scatter(x=series["at_s"], y=series["service_units"].get(t.name, []), name=t.name)
        for t in totals[:DRAWN]
    ]
    return _figure(lines, f"Service over time, {result.policy}", "service units")


def gaps(results: Sequence[Result]) -> Figure:
    lines = [Scatter(x=r.series["at_s"], y=r.series["gap"], name=r.policy) for r in results]
    figure = _figure(lines, "Accumulated gap between waiting tenants", "service units / weight")
    line = {"dash": "dash", "color": "#c00"}
    figure.add_hline(y=results[0].bound, line=line, annotation_text="2U")
    return figure


def queue_times(results: Sequence[Result]) -> Figure:
    parts: dict[str, Callable[[Result], float]] = {
        "p50": lambda r: r.queue_s.p50,
        "p95": lambda r: r.queue_s.p95,
        "p99": lambda r: r.queue_s.p99,
    }
    if len(results) > 1:
        names = [r.policy for r in results]
        bars = [Bar(x=names, y=[of(r) for r in results], name=part) for part, of in parts.items()]
    else:
        tenants = sorted(results[0].tenants, key=lambda t: -t.service_units)[:DRAWN]
        names = [tenant.name for tenant in tenants]
        bars = [
            Bar(x=names, y=[getattr(t.queue_s, part) for t in tenants], name=part) for part in parts
        ]
    return _figure(bars, "Queue time", "seconds", x_title="")


def jain(results: Sequence[Result]) -> Figure:
    lines = [
        Scatter(x=r.series["jain"]["at_s"], y=r.series["jain"]["index"], name=r.policy)
        for r in results
    ]
    figure = _figure(lines, "Jain index", "index")
    figure.update_yaxes(range=[0, 1.05])
    return figure


def engines(results: Sequence[Result]) -> Figure:
    if len(results) > 1:
        names = [result.policy for result in results]
        bars = [
            Bar(x=names, y=[getattr(r, part) for r in results], name=part)
            for part in ("busy", "batch", "memory")
        ]
        figure = _figure(bars, "Engine utilisation", "part", x_title="")
    else:
        series = results[0].series
        lines = [
            Scatter(x=series["at_s"], y=series[part], name=part)
            for part in ("busy", "batch", "memory")
        ]
        figure = _figure(lines, "Engine utilisation", "part")
    figure.update_yaxes(range=[0, 1.05])
    return figure


def _figure(
    data: list[Scatter | Bar], title: str, y_title: str, x_title: str = "seconds"
) -> Figure:
    for number, trace in enumerate(data):
        if isinstance(trace, Scatter):
            trace.update(mode="lines", line={"dash": DASHES[number // 10 % len(DASHES)]})
    figure = Figure(data=data)
    figure.update_layout(
        title=title, xaxis_title=x_title, yaxis_title=y_title, template="plotly_white", height=420
    )
    return figure


def _page(trace: Trace, results: Sequence[Result]) -> Iterator[str]:
    title = escape(f"{trace.name}: {', '.join(result.policy for result in results)}")
    yield '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">'
    yield f"<title>{title}</title>\n<style>{STYLE}</style>\n</head>\n<body>"
    yield f"<h1>{escape(trace.name)}</h1>"
    tenants = len(results[0].tenants)
    yield f"<p>{len(trace.arrivals)} requests of {tenants} tenants in {trace.seconds:.0f} s.</p>"
    if trace.notes:
        yield "<ul>" + "".join(f"<li>{escape(note)}</li>" for note in trace.notes) + "</ul>"
    yield from _table(table.policies(results))
    for number, (name, figure) in enumerate(figures(results).items()):
        chart = to_html(figure, full_html=False, include_plotlyjs=number == 0, div_id=name)
        yield f"<figure>{chart}<figcaption>{escape(CAPTIONS[name])}</figcaption></figure>"
    yield f"<h2>Tenants under {escape(results[0].policy)}</h2>"
    yield from _table(table.tenants(results[0]))
    yield f"<h2>Lanes under {escape(results[0].policy)}</h2>"
    yield from _table(table.lanes(results[0]))
    yield "</body>\n</html>"


def _table(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    yield "<table>"
    yield _row("th", rows[0])
    for row in rows[1:]:
        yield _row("td", row)
    yield "</table>"


def _row(tag: str, cells: Iterable[str]) -> str:
    return "<tr>" + "".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in cells) + "</tr>"
