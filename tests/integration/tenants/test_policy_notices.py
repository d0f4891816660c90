"""A change is in force in a gateway because it is told of it, and also where it is not."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.db import connection, connections, transaction

from gateway import service
from gateway.service import Gateway
from tenants import postgres, services
from tests import builders

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.store]
NEVER_S = 10_000.0
GATEWAYS = (
    "SELECT pid FROM pg_stat_activity WHERE query LIKE 'LISTEN%' AND datname = current_database()"
)


async def eventually(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not true():
            await asyncio.sleep(0.01)


def in_a_thread(work: Callable[..., Any]) -> Callable[..., Awaitable[Any]]:
    """Database work beside the loop, whose thread then holds no connection."""

    def run(*given: Any) -> Any:
        try:
            return work(*given)
        finally:
            connections.close_all()

    return sync_to_async(run)


@in_a_thread
def apply(weight: int) -> None:
    document = {**builders.policy(), "pools": []}
    document["tenants"] = [{"name": "acme", "tier": "gold", "weight": weight}]
    builders.apply_policy(document)


@in_a_thread
def ask(statement: str) -> list[Any]:
    with connection.cursor() as cursor:
        cursor.execute(statement)
        return [row[0] for row in cursor.fetchall()]


async def listener() -> int:
    """The one session that listens, once those that have ended are gone."""
    async with asyncio.timeout(60):
        while len(found := await ask(GATEWAYS)) != 1:
            await asyncio.sleep(0.01)
    return int(found[0])


@pytest.fixture
async def gateway(settings: Any, tmp_path: Any) -> Any:
    settings.FAIRLANE_DATA_DIR = tmp_path
    await apply(1)
    made = Gateway()
    await made.start()
    yield made
    await made.stop()


def weight(gateway: Gateway) -> float:
    return gateway.snapshot.tenants["acme"].weight


def never(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    for name in names:
        monkeypatch.setattr(service, name, NEVER_S)


@pytest.fixture
def no_poll(monkeypatch: pytest.MonkeyPatch) -> None:
    never(monkeypatch, "POLL_S", "POLL_WHILE_TOLD_S")


@pytest.fixture
def deaf(monkeypatch: pytest.MonkeyPatch) -> None:
    """Connected, and told of nothing: as when a notice is lost."""
    monkeypatch.setattr(postgres, "CHANNEL", "somebody_elses")
    monkeypatch.setattr(postgres, "notify", lambda version: None)


@pytest.mark.postgres
async def test_by_a_notice_alone(no_poll: None, gateway: Gateway) -> None:
    await eventually(lambda: gateway.notices.connected)
    for changed in (2, 3):  # the first may be found by the look that follows a connection
        await apply(changed)
        await eventually(lambda: weight(gateway) == changed)  # noqa: B023


async def test_by_the_poll_alone(deaf: None, gateway: Gateway) -> None:
    await apply(2)
    await eventually(lambda: weight(gateway) == 2)


@pytest.mark.postgres
async def test_by_a_notice_alone_once_a_lost_connection_is_back(
    no_poll: None, gateway: Gateway
) -> None:
    await eventually(lambda: gateway.notices.connected)
    lost = await listener()
    await ask(f"SELECT pg_terminate_backend({lost})")

    async with asyncio.timeout(60):
        while not gateway.notices.connected or lost in await ask(GATEWAYS):
            await asyncio.sleep(0.01)
    await apply(2)
    await eventually(lambda: weight(gateway) == 2)


@pytest.mark.postgres
async def test_what_came_while_nobody_listened_is_looked_for_at_the_next_connection(
    no_poll: None, gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    await eventually(lambda: gateway.notices.connected)
    with monkeypatch.context() as silent:
        silent.setattr(postgres, "notify", lambda version: None)
        await apply(2)
    await ask(f"SELECT pg_terminate_backend({await listener()})")
    await eventually(lambda: weight(gateway) == 2)


@pytest.mark.postgres
def test_a_change_that_is_undone_is_told_to_nobody() -> None:
    builders.apply_policy()
    with postgres.session() as other:
        other.execute(f"LISTEN {postgres.CHANNEL}")
        with transaction.atomic():
            services.edit_object("tenant", "acme", {"weight": 3}, actor=builders.ROOT)
            transaction.set_rollback(True)
        assert list(other.notifies(timeout=0)) == []
        services.edit_object("tenant", "acme", {"weight": 3}, actor=builders.ROOT)
        told = next(other.notifies())
        assert told.channel == postgres.CHANNEL
