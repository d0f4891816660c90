from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.gateway.rig import Rig, rig


@pytest.fixture(scope="package")
def product(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    """`serve` and a simulated engine."""
    folder: Path = tmp_path_factory.mktemp("served")
    with rig(folder, engines=1) as running:
        yield running
