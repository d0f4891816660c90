"""Labels are bounded, and hold nothing that a caller can choose."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from gateway import metrics
from gateway.calls import count
from gateway.errors import Outcome
from gateway.run import Run
from tests.unit.gateway.cast import AT, planned_run, snapshot, who


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    caches = (metrics.ended, metrics.refused, metrics.token_counters, metrics.units)
    for cache in caches:
        cache.cache_clear()
    monkeypatch.setattr(metrics, "_tenants", set())
    monkeypatch.setattr(metrics, "MAX_TENANTS", 3)
    yield
    for cache in caches:
        cache.cache_clear()


def requests(**labels: str) -> float:
    return metrics.registry.get_sample_value("fairlane_requests_total", labels) or 0.0


def test_the_first_tenants_keep_their_names_and_the_rest_count_together() -> None:
    labels = [metrics.tenant_label(name) for name in ("a", "b", "c", "d", "e", "a")]
    assert labels == ["a", "b", "c", "other", "other", "a"]


def test_tenants_past_the_bound_still_count() -> None:
    before = requests(tenant="other", model="m", lane="l", outcome="ok")
    for number in range(10):
        metrics.ended(f"tenant-{number}", "m", "l", "ok").inc()
    assert requests(tenant="other", model="m", lane="l", outcome="ok") - before == 7


def test_the_bound_holds_for_tokens_and_units_too() -> None:
    for name in ("a", "b", "c"):
        metrics.tenant_label(name)
    prompt, _, _ = metrics.token_counters("late", "m-late")
    prompt.inc(5)
    metrics.units("late", "m-late", "l").inc(7)
    value = metrics.registry.get_sample_value
    labels = {"tenant": "other", "model": "m-late"}
    assert value("fairlane_tokens_total", {**labels, "kind": "prompt"}) == 5
    assert value("fairlane_service_units_total", {**labels, "lane": "l"}) == 7


def test_a_tenant_that_policy_has_no_more_takes_its_series_along_and_leaves_its_place() -> None:
    for name in ("a", "gone", "c", "late"):
        metrics.ended(name, "m", "l", "ok").inc()
        metrics.refused(name, "max_running").inc()
        metrics.token_counters(name, "m")[0].inc()
        metrics.units(name, "m", "l").inc()
    before = requests(tenant="a", model="m", lane="l", outcome="ok")
    late = requests(tenant="late", model="m", lane="l", outcome="ok")
    assert b'tenant="gone"' in metrics.exposition()
    metrics.keep_tenants({"a", "c", "late"})
    assert b'tenant="gone"' not in metrics.exposition()
    for name in ("a", "late"):
        metrics.ended(name, "m", "l", "ok").inc()
    assert requests(tenant="a", model="m", lane="l", outcome="ok") == before + 1
    assert requests(tenant="late", model="m", lane="l", outcome="ok") == late + 1
    metrics.ended("gone", "m", "l", "ok").inc()  # a call of it that still ran, or one that is back
    assert requests(tenant="other", model="m", lane="l", outcome="ok") > 0
    metrics.keep_tenants({"a", "c", "late"})


def test_a_model_that_a_caller_made_up_is_no_label() -> None:
    run = Run("r1", AT, 100.0, snapshot(), who=who(snapshot()), model="made-up-by-the-caller")
    run.end(Outcome.MODEL_NOT_FOUND)
    count(run.record(101.0), run)
    assert requests(tenant="alice", model="unknown", lane="", outcome="model_not_found") >= 1
    assert b"made-up-by-the-caller" not in metrics.exposition()


def test_a_call_that_never_had_a_place_has_no_queue_time() -> None:
    run = planned_run()
    run.end(Outcome.RATE_LIMIT_EXCEEDED)
    before = generate_latest(_only("fairlane_queue_seconds"))
    count(run.record(101.0), run)
    assert generate_latest(_only("fairlane_queue_seconds")) == before


def test_no_metric_of_another_library_is_shown() -> None:
    names = [
        line.split()[2] for line in metrics.exposition().decode().split("\n") if "TYPE" in line
    ]
    assert names
    assert all(name.startswith("fairlane_") for name in names)


def _only(name: str) -> CollectorRegistry:
    return metrics.registry.restricted_registry([f"{name}_count", f"{name}_bucket"])  # type: ignore[return-value]
