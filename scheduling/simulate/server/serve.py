"""Runs the app under uvicorn: as a process of its own, or inside a running loop (for tests)."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
from collections.abc import AsyncIterator, Callable, Iterator

import uvicorn
import uvloop

from scheduling.simulate.server.app import App, Options

DRAIN_S = 1.0  # a process lets running calls finish so long when it is told to stop
CLOSE_S = 1.0  # and for so long calls may notice that their connection is gone


class QuietServer(uvicorn.Server):
    """uvicorn's own loop wakes ten times a second to look for a flag; this one waits for it."""

    def __init__(self, app: App, drain_s: float) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                http="httptools",
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                date_header=False,
                proxy_headers=False,
            )
        )
        self.ready = asyncio.Event()
        self._drain_s = drain_s
        self._stopped = asyncio.Event()

    def stop(self) -> None:
        self._stopped.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals belong to whoever started this, and inside a test to the test runner."""
        yield

    async def main_loop(self) -> None:
        await self.on_tick(0)  # sets the headers that every answer has
        self.ready.set()
        await self._stopped.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for server in self.servers:
            server.close()
        for connection in list(self.server_state.connections):
            connection.shutdown()
        await self._wait(self._drain_s)
        for connection in list(self.server_state.connections):
            connection.transport.abort()
        await self._wait(CLOSE_S)

    async def _wait(self, most_s: float) -> None:
        if self.server_state.tasks:
            await asyncio.wait(self.server_state.tasks, timeout=most_s)


def bind(host: str, port: int) -> socket.socket:
    """Raises OSError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family, backlog=2048)


def address(sock: socket.socket) -> str:
    host, port = sock.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


@contextlib.asynccontextmanager
async def serving(app: App, sock: socket.socket, drain_s: float) -> AsyncIterator[QuietServer]:
    """Serves on the running loop until the block ends."""
    server = QuietServer(app, drain_s)
    task = asyncio.create_task(server.serve(sockets=[sock]))
    ready = asyncio.create_task(server.ready.wait())
    await asyncio.wait({task, ready}, return_when=asyncio.FIRST_COMPLETED)
    try:
        yield server
    finally:
        ready.cancel()
        server.stop()
        await task
        app.live.close()


def run(options: Options, sock: socket.socket, say: Callable[[str], None]) -> None:
    """A process of its own, until SIGINT or SIGTERM."""
    logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_run(options, sock, say))


async def _run(options: Options, sock: socket.socket, say: Callable[[str], None]) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with serving(App(options), sock, DRAIN_S):
        profile = options.profile.name
        say(f"Simulated engine ({profile}): {', '.join(options.models)} at {address(sock)}/v1")
        await stop.wait()
