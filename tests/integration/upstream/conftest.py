"""The contract suite runs over our transport and over httpx's own, on asyncio and on uvloop."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import httpx
import pytest
import uvloop

from gateway.upstream.pool import Limits
from gateway.upstream.transport import EngineTransport
from tests.integration.upstream.server import Engine, Script
from tests.over_httpx import AsHttpx

Start = Callable[..., Awaitable[Engine]]
Build = Callable[..., httpx.AsyncBaseTransport]


def pytest_asyncio_loop_factories() -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


@pytest.fixture
async def engine() -> AsyncIterator[Start]:
    async with contextlib.AsyncExitStack() as stack:

        async def start(script: Script, **options: object) -> Engine:
            started = await Engine(script, **options).start()  # type: ignore[arg-type]
            stack.push_async_callback(started.stop)
            return started

        yield start


def ours(
    max_connections: int = 100, idle_s: float = 60.0, tls: ssl.SSLContext | None = None
) -> httpx.AsyncBaseTransport:
    return AsHttpx(EngineTransport(Limits(max_connections, max_connections, idle_s), tls))


def reference(
    max_connections: int = 100, idle_s: float = 60.0, tls: ssl.SSLContext | None = None
) -> httpx.AsyncBaseTransport:
    limits = httpx.Limits(
        max_connections=max_connections,
        max_keepalive_connections=max_connections,
        keepalive_expiry=idle_s,
    )
    return httpx.AsyncHTTPTransport(limits=limits, verify=tls or ssl.create_default_context())


async def closing_all(build: Build) -> AsyncIterator[Build]:
    async with contextlib.AsyncExitStack() as stack:

        def build_one(**options: object) -> httpx.AsyncBaseTransport:
            transport = build(**options)
            stack.push_async_callback(transport.aclose)
            return transport

        yield build_one


@pytest.fixture(params=[ours, reference], ids=["ours", "httpx"])
async def make_transport(request: pytest.FixtureRequest, engine: Start) -> AsyncIterator[Build]:
    async for build in closing_all(request.param):
        yield build


@pytest.fixture
def transport(make_transport: Build) -> httpx.AsyncBaseTransport:
    return make_transport()


@pytest.fixture
async def make_ours(engine: Start) -> AsyncIterator[Build]:
    async for build in closing_all(ours):
        yield build


@pytest.fixture
def our_transport(make_ours: Build) -> httpx.AsyncBaseTransport:
    return make_ours()


@pytest.fixture
def deaf_port() -> Iterator[int]:
    """A port that never completes a handshake: its queue of connections is full."""
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        port = listener.getsockname()[1]
        for _ in range(4):
            filler = stack.enter_context(socket.socket())
            filler.setblocking(False)
            filler.connect_ex(("127.0.0.1", port))
        yield port


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("tls")
    command = (
        "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2"
        " -subj /CN=engine.test -addext subjectAltName=IP:127.0.0.1,DNS:localhost"
        " -keyout key.pem -out cert.pem"
    )
    subprocess.run(command.split(), cwd=folder, check=True, capture_output=True)
    return folder / "key.pem", folder / "cert.pem"
