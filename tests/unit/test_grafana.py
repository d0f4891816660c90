"""The dashboard for Grafana holds what Grafana needs to import it, and asks for all that it should.

That a gateway serves what it asks for is held by tests/acceptance/gateway/test_metrics.py.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from fairlane.environment import ROOT

BOARD: dict[str, Any] = json.loads((ROOT / "docs/grafana/fairlane.json").read_text())
PANELS = [panel for panel in BOARD["panels"] if panel["type"] != "row"]
SUBJECTS = {
    "token share": "fairlane_tokens_total",
    "fairness debt": "fairlane_fairness_debt_units",
    "its bound": "fairlane_fairness_bound_units",
    "queue time": "fairlane_queue_seconds_bucket",
    "first token": "fairlane_ttft_seconds_bucket",
    "throttles by reason": "fairlane_refusals_total",
    "lanes": "fairlane_lane_queued",
    "reserved shares": "fairlane_lane_reserved_share",
    "pools": "fairlane_endpoint_load_tokens",
    "budgets": "fairlane_budget_used_ratio",
    "the journal": "fairlane_journal_unwritten_bytes",
    "the ledger": "fairlane_ledger_differences",
}


def test_it_has_the_fields_that_an_import_needs() -> None:
    assert BOARD["schemaVersion"] >= 36
    assert BOARD["id"] is None  # Grafana gives one
    assert {BOARD["title"], BOARD["uid"]} == {"Fairlane", "fairlane"}
    assert BOARD["time"]["from"]
    ids = [panel["id"] for panel in BOARD["panels"]]
    assert len(set(ids)) == len(ids)


def test_the_source_of_its_data_is_a_variable() -> None:
    variables = {each["name"]: each for each in BOARD["templating"]["list"]}
    assert variables["datasource"]["type"] == "datasource"
    assert variables["datasource"]["query"] == "prometheus"
    assert variables.keys() == {"datasource", "tenant", "model", "lane"}
    wanted = {"type": "prometheus", "uid": "${datasource}"}
    for panel in PANELS:
        assert [each["datasource"] for each in (panel, *panel["targets"])] == [wanted] * (
            1 + len(panel["targets"])
        )


def test_every_panel_has_a_title_a_place_and_something_to_ask() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in PANELS:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert panel["title"]
        assert all(target["expr"] and target["refId"] for target in panel["targets"])
        assert place["x"] + place["w"] <= 24
        assert not taken & cells, f"{panel['title']} stands on another"
        taken |= cells


@pytest.mark.parametrize("subject", SUBJECTS)
def test_it_shows(subject: str) -> None:
    asked = [target["expr"] for panel in PANELS for target in panel["targets"]]
    assert any(SUBJECTS[subject] in expression for expression in asked)
