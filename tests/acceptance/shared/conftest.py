from collections.abc import Iterator

import pytest

from tests.acceptance.shared.deployment import Deployment, deployment


def daily() -> dict[str, object]:
    return {"name": "daily", "kind": "sustained", "cost": 200, "period": "day"}


TENANTS = {
    "alice": {"budgets": [daily()]},
    "bob": {"limits": {"max_running": 2}},
    "heavy": {},
    "light": {},
    "thrice": {"weight": 3},
    "once": {"weight": 1},
    "four": {"weight": 4},
    "two": {"weight": 2},
    "one": {"weight": 1},
    "left": {"budgets": [daily()]},
    "apart": {"budgets": [daily()]},
    "forgotten": {
        "budgets": [
            {**daily(), "cost": 1_000_000},
            {"name": "burst", "kind": "burst", "cost": 1_000_000, "refill_per_second": 1},
        ]
    },
    "killed": {"budgets": [daily()]},
}


@pytest.fixture(scope="package")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    folder = tmp_path_factory.mktemp("shared")
    settings = {
        "FAIRLANE_STATE_LOSS": "fail-closed",
        "FAIRLANE_KEEP_ALIVE_SECONDS": "600",  # no connection ends because a machine is slow
        "FAIRLANE_DRAIN_SECONDS": "120",
    }
    with deployment(folder, TENANTS, **settings) as started:
        yield started


@pytest.fixture
def pair(running: Deployment) -> Iterator[Deployment]:
    """Two gateways and an engine that behaves, until a test says otherwise."""
    running.engine.script()
    yield running
    running.engine.script()
