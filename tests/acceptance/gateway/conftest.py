from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.gateway.rig import Rig
from tests.acceptance.gateway.rig import rig as started


@pytest.fixture(scope="package")
def product(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    """`serve` and two simulated engines, for all files of this folder."""
    folder: Path = tmp_path_factory.mktemp("gateway")
    with started(folder, engines=2) as running:
        yield running


@pytest.fixture
def rig(product: Rig) -> Iterator[Rig]:
    """The product with idle engines that behave, until a test says otherwise."""
    for engine in product.engines:
        engine.script()
    product.idle()
    yield product
    for engine in product.engines:
        engine.script()
