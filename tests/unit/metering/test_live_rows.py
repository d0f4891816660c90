"""What several gateways tell of one endpoint, as the pools page shows it."""

from __future__ import annotations

from typing import Any

from metering.dashboards.live import combine

URL = "http://a/v1"


def sample(**state: Any) -> dict[str, Any]:
    known = {"available": True, "running": 3, "load": 10.0, "max_running": 14, "max_load": 100.0}
    return {"pools": {"chat": {"endpoints": {URL: {**known, **state}}, "lanes": {}}}}


def endpoint(*samples: dict[str, Any]) -> dict[str, Any]:
    [pool] = combine(samples).pools
    [row] = pool["endpoints"]
    return dict(row)


def test_a_limit_of_policy_is_one_and_what_gateways_learnt_adds_up() -> None:
    assert endpoint(sample(), sample())["max_running"] == 14
    both = endpoint(sample(auto=True), sample(auto=True, max_running=6))
    assert (both["max_running"], both["running"]) == (20, 6)


def test_what_one_gateway_knows_of_an_engine_is_shown() -> None:
    knows = sample(version="0.32.0", fingerprint="4be1", priority_ignored=True,
                   engine={"running": 6.0, "waiting": 1.0})  # fmt: skip
    for row in (endpoint(knows, sample()), endpoint(sample(), knows)):
        assert row["priority_ignored"] is True
        assert (row["version"], row["fingerprint"]) == ("0.32.0", "4be1")
        assert row["engine"] == {"running": 6.0, "waiting": 1.0}
    assert not endpoint(sample())["priority_ignored"]
