from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
import valkey

from gateway.shared import books, counters, returning, tending
from gateway.shared import state as shared_state
from metering.restore import LedgerSays, Used
from scheduling import kept
from tests.integration.shared.accounts_on_redis import TEXT
from tests.integration.shared.gateways import Gateway, Start, policy
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


@pytest.fixture
def ledger(monkeypatch: pytest.MonkeyPatch) -> list[Used]:
    """What gateways find in the database of budgets: what a test puts here."""
    said: list[Used] = []
    monkeypatch.setattr(books, "read_ledger", lambda *_: LedgerSays(list(said), 0))
    monkeypatch.setattr(books, "read_recent", lambda *_: [])
    monkeypatch.setattr(books.CorrectionFeed, "read", lambda _: [])
    monkeypatch.setattr(shared_state, "heard_of", lambda: 0)
    monkeypatch.setattr(returning, "heard_ages_s", dict)
    return said


@pytest.fixture
def ended(ledger: list[Used], monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """And of requests, by their own gateways: what a test puts here."""
    found: dict[str, Any] = {}

    def read_ended(ids: list[str], _: Any) -> dict[str, Any]:
        return {id: found[id] for id in ids if id in found}

    monkeypatch.setattr(books, "read_ended", read_ended)
    monkeypatch.setattr(tending, "read_ended", read_ended)
    return found


@pytest.fixture
def rows(monkeypatch: pytest.MonkeyPatch) -> dict[str, kept.Found]:
    """What is kept there of pools' counters; the ledger has nothing since."""
    found: dict[str, kept.Found] = {}
    monkeypatch.setattr(
        kept, "save", lambda pool, now, at: found.update({pool: kept.Found(at, now)})
    )
    monkeypatch.setattr(kept, "find", lambda pool, since: found.get(pool))
    monkeypatch.setattr(counters, "read_served", lambda *_: [])
    return found


@pytest.fixture
async def start(
    redis: RedisServer,
    ledger: list[Used],
    rows: dict[str, kept.Found],
    ended: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
) -> AsyncIterator[Start]:
    monkeypatch.setattr(shared_state, "FLOOR_S", 0.1)
    made: list[Gateway] = []

    async def start(
        name: str, opens: bool = False, joins: bool = True, **policy_of: Any
    ) -> Gateway:
        gateway = Gateway(name, redis.url, opens, policy(**policy_of))
        made.append(gateway)
        return await gateway.start(joins)

    yield start
    for gateway in made:
        await gateway.stop()
