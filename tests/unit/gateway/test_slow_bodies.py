"""A body that comes a byte at a time, on a real socket: its connection is not its for good."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import uvicorn

from fairlane.http import BoundedHttp
from gateway import incoming
from gateway.exchange import Exchange
from tests.unit.gateway.cast import SECRET
from tests.unit.gateway.world import World

HEAD = (
    b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n"
    b"Authorization: Bearer " + SECRET["alice"] + b"\r\n\r\n"
)
PATIENCE_S = 60.0


@asynccontextmanager
async def served(world: World) -> AsyncIterator[int]:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await world.calls.serve("chat", Exchange(scope, receive, send))

    config = uvicorn.Config(app, port=0, http=BoundedHttp, lifespan="off", log_config=None)
    server = uvicorn.Server(config)
    serving = asyncio.create_task(server._serve())
    await world.until(lambda: server.started)
    yield server.servers[0].sockets[0].getsockname()[1]
    server.should_exit = True
    await serving


@pytest.mark.parametrize("drips", [True, False])
async def test_a_slow_body_is_refused_and_its_connection_closed(
    monkeypatch: pytest.MonkeyPatch, drips: bool
) -> None:
    monkeypatch.setattr(incoming, "PATIENCE_S", 0.2)
    world = World()
    async with served(world) as port, asyncio.timeout(PATIENCE_S):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(HEAD + b"{")

        async def drip() -> None:
            while drips:
                writer.write(b" ")
                await asyncio.sleep(0.02)

        dripping = asyncio.create_task(drip())
        try:
            said = await reader.read()  # until the server closes
        except ConnectionResetError:  # it closed on a byte that was still on its way
            said = b""
        dripping.cancel()
        writer.close()
    assert said or drips
    if said:
        assert said.startswith(b"HTTP/1.1 400 ")
        assert b"invalid_request" in said
        assert b"too slowly" in said
    assert (world.record.status, world.record.finish_reason) == (400, "rejected")
    assert world.is_empty
