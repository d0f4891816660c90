from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.stack import Stack, demo_policy, stack


@pytest.fixture(scope="package")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """`serve` with the demo policy and two simulated engines, for all files that need no more."""
    folder: Path = tmp_path_factory.mktemp("fairlane")
    with stack(folder, demo_policy, 2, "--profile", "demo") as running:
        yield running
