from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.gateway.rig import Rig
from tests.engines.noted import NOTED
from tests.engines.process import MAKE, RealEngine, started
from tests.engines.rig import POOLS, rig


@pytest.fixture(scope="package", params=list(MAKE))
def engine(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RealEngine]:
    """One that generates text: each kind in turn."""
    folder: Path = tmp_path_factory.mktemp(request.param)
    with started(MAKE[request.param](folder, list(POOLS))) as running:
        yield running


@pytest.fixture(scope="package")
def product(engine: RealEngine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    """`serve` in front of it."""
    with rig(tmp_path_factory.mktemp("served"), engine) as running:
        yield running


@pytest.fixture
def served(product: Rig, engine: RealEngine) -> Iterator[Rig]:
    """With an engine that has nothing to do."""
    engine.idle()
    return product


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    terminalreporter.section("measured, for docs/engines.md")
    for engine, what, value in NOTED:
        terminalreporter.write_line(f"{engine:10} {what}: {value}")
