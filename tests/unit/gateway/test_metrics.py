"""Labels are bounded, and hold nothing that a caller can choose."""

from __future__ import annotations

from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from gateway import metrics
from gateway.errors import Outcome
from gateway.governor import Place
from gateway.labelled import LabelledHistogram
from gateway.run import Run
from metering.core.hold import RateState
from metering.core.record import UsageRecord
from scheduling.core.model import Grant
from tests.unit.gateway.cast import AT, planned_run, snapshot, who


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "_tenants", set())
    monkeypatch.setattr(metrics, "MAX_TENANTS", 3)


def requests(**labels: str) -> float:
    return metrics.registry.get_sample_value("fairlane_requests_total", labels) or 0.0


def end_of(tenant: str, **more: Any) -> None:
    """A call of that tenant that ran."""
    run = planned_run()
    run.place = Place(
        Grant(run.request_id, "http://engine-a/v1"),
        run.plan.lane,
        0.0,
        RateState(),  # type: ignore[union-attr]
    )
    record = UsageRecord(
        request_id=run.request_id, at=AT, tenant=tenant, model="chat", lane="standard", **more
    )
    metrics.count(record, run)


def test_the_first_tenants_keep_their_names_and_the_rest_count_together() -> None:
    labels = [metrics.tenant_label(name) for name in ("a", "b", "c", "d", "e", "a")]
    assert labels == ["a", "b", "c", "other", "other", "a"]


def test_tenants_past_the_bound_still_count() -> None:
    before = requests(tenant="other", model="chat", lane="standard", outcome="ok")
    for number in range(10):
        end_of(f"tenant-{number}")
    assert requests(tenant="other", model="chat", lane="standard", outcome="ok") - before == 7


def test_the_bound_holds_for_tokens_and_units_too() -> None:
    for name in ("a", "b", "c"):
        metrics.tenant_label(name)
    value = metrics.registry.get_sample_value
    tokens = {"tenant": "other", "model": "chat", "kind": "prompt"}
    units = {"tenant": "other", "model": "chat", "lane": "standard"}
    before = value("fairlane_tokens_total", tokens) or 0.0
    units_before = value("fairlane_service_units_total", units) or 0.0
    end_of("late", prompt_tokens=5, cost=7.0)
    assert value("fairlane_tokens_total", tokens) == before + 5
    assert value("fairlane_service_units_total", units) == units_before + 7


def test_a_tenant_that_policy_has_no_more_takes_its_series_along_and_leaves_its_place() -> None:
    for name in ("a", "gone", "c", "late"):
        end_of(name, throttle_reason="max_running")
    before = requests(tenant="a", model="chat", lane="standard", outcome="ok")
    late = requests(tenant="late", model="chat", lane="standard", outcome="ok")
    assert metrics.exposition().count(b'tenant="gone"') == 6
    metrics.keep_tenants({"a", "c", "late"})
    assert b'tenant="gone"' not in metrics.exposition()
    for name in ("a", "late"):
        end_of(name)
    assert requests(tenant="a", model="chat", lane="standard", outcome="ok") == before + 1
    assert requests(tenant="late", model="chat", lane="standard", outcome="ok") == late + 1
    end_of("gone")  # a call of it that still ran, or one that is back
    assert requests(tenant="other", model="chat", lane="standard", outcome="ok") > 0
    metrics.keep_tenants({"a", "c", "late"})


def test_a_histogram_counts_each_bucket_with_all_below_it() -> None:
    registry = CollectorRegistry()
    histogram = LabelledHistogram("fairlane_wait", "Waits.", ("lane",), (0.1, 1.0), registry)
    for waited in (0.05, 0.1, 0.5, 7.0):
        histogram.observe(("slow",), waited)

    def value(name: str, **more: str) -> float | None:
        return registry.get_sample_value(f"fairlane_wait_{name}", {"lane": "slow", **more})

    assert [value("bucket", le=each) for each in ("0.1", "1.0", "+Inf")] == [2, 3, 4]
    assert (value("count"), value("sum")) == (4, pytest.approx(7.65))


def test_a_model_that_a_caller_made_up_is_no_label() -> None:
    run = Run("r1", AT, 100.0, snapshot(), who=who(snapshot()), model="made-up-by-the-caller")
    run.end(Outcome.MODEL_NOT_FOUND)
    metrics.count(run.record(101.0), run)
    assert requests(tenant="alice", model="unknown", lane="", outcome="model_not_found") >= 1
    assert b"made-up-by-the-caller" not in metrics.exposition()


def test_a_call_that_never_had_a_place_has_no_queue_time() -> None:
    run = planned_run()
    run.end(Outcome.RATE_LIMIT_EXCEEDED)
    before = generate_latest(_only("fairlane_queue_seconds"))
    metrics.count(run.record(101.0), run)
    assert generate_latest(_only("fairlane_queue_seconds")) == before


def test_no_metric_of_another_library_is_shown() -> None:
    names = [
        line.split()[2] for line in metrics.exposition().decode().split("\n") if "TYPE" in line
    ]
    assert names
    assert all(name.startswith("fairlane_") for name in names)


def _only(name: str) -> CollectorRegistry:
    return metrics.registry.restricted_registry([f"{name}_count", f"{name}_bucket"])  # type: ignore[return-value]
