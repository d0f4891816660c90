"""The report: figures that plotly accepts, on a page that asks nothing of the network."""

from __future__ import annotations

import re
from html import escape

import pytest
from plotly.graph_objects import Figure

from scheduling.simulate.figures import Result
from scheduling.simulate.report import CAPTIONS, figures, page
from scheduling.simulate.trace import Trace
from tests.unit.simulate.cast import A10G, OVERLOAD, run


@pytest.fixture(scope="module")
def results() -> list[Result]:
    return [run(OVERLOAD, policy, profile=A10G) for policy in ("fairlane", "fcfs")]


@pytest.mark.parametrize("count", [1, 2])
def test_every_figure_is_one_that_plotly_accepts(results: list[Result], count: int) -> None:
    charts = figures(results[:count])
    assert charts.keys() == CAPTIONS.keys()
    for chart in charts.values():
        again = Figure(chart.to_dict())  # raises for a field or a value that plotly lacks
        assert len(again.data) >= 1
        assert all(len(trace.x) == len(trace.y) > 0 for trace in again.data)
        assert again.layout.title.text


def test_service_over_time_ends_at_what_was_asked(results: list[Result]) -> None:
    lines = {line.name: list(line.y) for line in figures(results)["service"].data}
    asked = {
        name: sum(
            a.prompt_tokens + 2 * a.output_tokens for a in OVERLOAD.arrivals if a.tenant == name
        )
        for name in ("alice", "bob")
    }
    assert {name: values[-1] for name, values in lines.items()} == asked
    assert all(values == sorted(values) for values in lines.values())


def test_the_gap_chart_has_a_line_for_each_policy_and_one_at_2u(results: list[Result]) -> None:
    chart = figures(results)["gap"]
    assert [line.name for line in chart.data] == ["fairlane", "fcfs"]
    assert chart.layout.shapes[0].y0 == results[0].bound
    assert max(chart.data[0].y) < results[0].bound < max(chart.data[1].y)


def test_the_page_is_whole(results: list[Result]) -> None:
    text = page(Trace("<b>mine</b>", OVERLOAD.arrivals, ("a & b",)), results)
    assert "<b>mine</b>" not in text
    assert "a &amp; b" in text
    own = re.sub(r"<script.*?</script>", "", text, flags=re.DOTALL)
    assert not re.search(r"(src|href)\s*=", own)
    assert not re.search(r"<script[^>]+src", text)
    assert text.count("plotly.js v") == 1
    for caption in CAPTIONS.values():
        assert escape(caption) in text
