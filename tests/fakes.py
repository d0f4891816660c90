"""Stand-ins that several suites share."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx

from scheduling.simulate.profile import Profile, load
from scheduling.simulate.server.app import App, Options
from scheduling.simulate.server.received import Received
from scheduling.simulate.server.serve import address, bind, serving


@dataclass
class RunningEngine:
    """The simulated engine on a real socket of this event loop.

    `script` takes the words of `scheduling/simulate/server/faults.py`: `hold=1s`, `status=502`,
    `in=10,out=20,cut@5`; "" ends it. It holds for the requests that come after it, the next
    `times` of them where that is given.
    """

    app: App
    url: str  # with its /v1

    @property
    def requests(self) -> list[Received]:
        """What came to the two generating routes, oldest first: headers, body, priority, how much
        was sent, whether the client hung up."""
        return list(self.app.log.requests)

    def script(self, words: str, times: int | None = None) -> None:
        self.app.script(words, times)

    @property
    def running(self) -> int:
        """Sequences in the engine's batch."""
        return self.app.engine.running

    @property
    def waiting(self) -> int:
        """Sequences in the engine's own queue."""
        return self.app.engine.waiting

    @property
    def open(self) -> int:
        """Calls being served, those that a script holds or hangs included."""
        return self.app.generate.open

    async def until(self, condition: Callable[[], Any], timeout: float = 60.0) -> None:
        """Waits for something to become true, for example `lambda: engine.open == 3`."""
        async with asyncio.timeout(timeout):
            while not condition():
                await asyncio.sleep(0.002)


@asynccontextmanager
async def running_engine(
    profile: str | Profile = "fast", models: tuple[str, ...] = ("demo-chat",), **options: Any
) -> AsyncIterator[RunningEngine]:
    """`options` are those of `scheduling.simulate.server.app.Options`: policy, api_key, seed,
    speed, max_queued, keep."""
    loaded = load(profile) if isinstance(profile, str) else profile
    app = App(Options(profile=loaded, models=models, **({"keep": 10_000} | options)))
    sock = bind("127.0.0.1", 0)
    async with serving(app, sock, drain_s=0.0):
        yield RunningEngine(app, f"{address(sock)}/v1")


def engine_client(engine: RunningEngine, **options: Any) -> httpx.AsyncClient:
    """An HTTP client straight to the engine's root (`/v1/models`, `/metrics`)."""
    return httpx.AsyncClient(base_url=engine.url.removesuffix("/v1"), timeout=20, **options)
