"""What /metrics serves under traffic: the figures of this moment, and all that Grafana's dashboard
asks for."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.acceptance.gateway.rig import Rig
from tests.acceptance.stack import ROOT, until

BOARD: dict[str, Any] = json.loads((ROOT / "docs/grafana/fairlane.json").read_text())
BUDGET = {"name": "hourly", "kind": "sustained", "cost": 100_000, "period": "hour"}
Samples = dict[str, list[tuple[dict[str, str], float]]]


def samples(rig: Rig) -> Samples:
    found: Samples = defaultdict(list)
    for family in text_string_to_metric_families(rig.metrics()):
        for sample in family.samples:
            found[sample.name].append((sample.labels, sample.value))
    return found


def value(found: Samples, name: str, **labels: str) -> float:
    return sum(value for has, value in found[name] if labels.items() <= has.items())


def asked() -> Iterator[tuple[str, set[str]]]:
    """Each metric that the dashboard names, with the labels that it expects of it."""
    for panel in BOARD["panels"]:
        for target in panel.get("targets", ()):
            shown = set(re.findall(r"{{(\w+)}}", target.get("legendFormat", "")))
            for name, selector in re.findall(r"(fairlane_\w+)(?:{([^}]*)})?", target["expr"]):
                yield name, set(re.findall(r"(\w+)=", selector)) | shown
            for group in re.findall(r"by \(([^)]*)\)", target["expr"]):
                (first,) = re.findall(r"(fairlane_\w+)", target["expr"])[:1]
                yield first, set(re.split(r",\s*", group))
    for variable in BOARD["templating"]["list"]:
        yield from (
            (name, {label})
            for name, label in re.findall(r"label_values\((\w+), (\w+)\)", str(variable["query"]))
        )


@pytest.fixture
def traffic(rig: Rig) -> Iterator[tuple[str, Samples]]:
    """A tenant that was served, refused, and runs one more; and what is told meanwhile."""
    alice = rig.tenant(limits={"requests_per_minute": 3}, budgets=[BUDGET])
    assert [alice.chat(stream=True).status for _ in range(2)] == [200, 200]
    rig.engine.script("hang", times=1)
    call = alice.start()
    rig.running(alice.tenant, 1)
    assert alice.chat().status == 429
    yield alice.tenant, samples(rig)
    call.close()


def test_all_that_the_dashboard_asks_for_is_served(traffic: tuple[str, Samples]) -> None:
    _, found = traffic
    missing = {
        (name, label)
        for name, labels in asked()
        for label in labels or {""}
        if not any(not label or label in has for has, _ in found[name])
    }
    assert len(list(asked())) > 50
    assert not missing


def test_the_gauges_tell_of_this_moment(rig: Rig, traffic: tuple[str, Samples]) -> None:
    tenant, found = traffic
    assert value(found, "fairlane_tenant_running", tenant=tenant) == 1
    assert value(found, "fairlane_refusals_total", tenant=tenant) == 1
    assert value(found, "fairlane_refusals_total", reason="requests_per_minute") >= 1
    assert 0 < value(found, "fairlane_budget_used_ratio", tenant=tenant, budget="hourly") < 1
    assert value(found, "fairlane_lane_reserved_share", lane="urgent") == 0.3
    assert value(found, "fairlane_endpoint_running", model="chat") >= 1
    assert value(found, "fairlane_endpoint_max_running", model="two") == 2
    assert value(found, "fairlane_ledger_failing_seconds") == 0


def test_who_is_gone_from_the_policy_is_gone_from_the_metrics(rig: Rig) -> None:
    """Tenants by their gauges and their counters; endpoints of a removed pool, which would be told
    as down for ever."""
    ours, model = rig.engine.url, rig.pool()
    alice = rig.tenant(model=model)
    assert alice.chat().status == 200

    def told(label: str, name: str) -> set[str]:
        """The metrics that have the name."""
        return {
            metric
            for metric, found in samples(rig).items()
            if any(has.get(label) == name for has, _ in found)
        }

    seen = {"fairlane_tenant_running", "fairlane_requests_total", "fairlane_tokens_total"}
    until(lambda: told("tenant", alice.tenant) >= seen, "it has its figures")
    rig.remove("tenants", alice.tenant)
    until(lambda: not told("tenant", alice.tenant), "it has none")
    assert "fairlane_endpoint_up" in told("model", model)
    rig.remove("pools", model)
    until(lambda: "fairlane_endpoint_up" not in told("model", model), "its endpoint has left")
    assert value(samples(rig), "fairlane_endpoint_up", model="chat", url=ours) == 1
