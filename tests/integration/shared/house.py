"""Gateways' schedulers on one server, and how to wait for what another brings about."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from scheduling.core.model import SchedulerConfig
from scheduling.shared.scheduler import SharedScheduler
from tests.redis_server import RedisServer

PATIENCE_S = 60.0


async def eventually(holds: Callable[[], Any]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not holds():
            await asyncio.sleep(0.005)


class House:
    """Starts on an empty server."""

    def __init__(self, server: RedisServer) -> None:
        self.server = server
        self.schedulers: list[SharedScheduler] = []
        self.clients: list[Redis] = []
        with server.client() as client:
            client.flushall()

    async def scheduler(self, config: SchedulerConfig, revision: float = 1, **given: Any) -> Any:
        client = Redis(port=self.server.port, retry=Retry(NoBackoff(), 0))
        made = SharedScheduler(client, config, revision, **given)
        self.clients.append(client)
        self.schedulers.append(made)
        await made.start()
        return made

    async def close(self) -> None:
        for scheduler in self.schedulers:
            await scheduler.close()
        for client in self.clients:
            await client.aclose()
