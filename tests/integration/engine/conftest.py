from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
import pytest

from tests.fakes import RunningEngine, engine_client, running_engine


@pytest.fixture
async def engine() -> AsyncIterator[RunningEngine]:
    async with running_engine() as running:
        yield running


@pytest.fixture
async def http(engine: RunningEngine) -> AsyncIterator[httpx.AsyncClient]:
    async with engine_client(engine) as client:
        yield client
