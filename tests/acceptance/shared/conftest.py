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
    "left": {"budgets": [daily()]},
}


@pytest.fixture(scope="package")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    folder = tmp_path_factory.mktemp("shared")
    with deployment(folder, TENANTS, FAIRLANE_STATE_LOSS="fail-closed") as started:
        yield started


@pytest.fixture
def pair(running: Deployment) -> Iterator[Deployment]:
    """Two gateways and an engine that behaves, until a test says otherwise."""
    running.engine.script()
    yield running
    running.engine.script()
