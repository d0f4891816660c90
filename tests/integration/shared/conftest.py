from __future__ import annotations

from collections.abc import Iterator

import pytest
import valkey

from tests.integration.shared.accounts_on_redis import TEXT
from tests.redis_server import RedisServer, redis_server


@pytest.fixture(scope="session")
def server() -> Iterator[RedisServer]:
    with redis_server() as started:
        yield started


@pytest.fixture
def client(server: RedisServer) -> Iterator[valkey.Valkey]:
    """An empty server with the accounts' functions."""
    with server.client() as made:
        made.flushall()
        made.function_load(TEXT, replace=True)
        yield made


@pytest.fixture
def redis() -> Iterator[RedisServer]:
    """A server of the test's own, to be killed."""
    with redis_server() as started:
        yield started
