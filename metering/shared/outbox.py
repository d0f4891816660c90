"""What the server must be told and nobody waits for: in order, in batches, until it has heard.

1. Nothing is lost over a broken connection: what was not confirmed is sent again, and every message
   may be sent twice (accounts.lua, 4).
2. Of one request only the latest progress is kept, and its end makes that needless.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import structlog

BATCH = 500
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.05, 1.0
PROGRESS_S = 0.2

Call = tuple[str, str, bytes]  # verb, key, message
Send = Callable[[Sequence[Call]], Awaitable[Any]]

log = structlog.get_logger(__name__)


class Outbox:
    def __init__(self, send: Send) -> None:
        self._send = send
        self._calls: deque[Call] = deque()
        self._progress: dict[str, Call] = {}
        self._wanted = asyncio.Event()
        self._empty = asyncio.Event()
        self._empty.set()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name="outbox")

    def __len__(self) -> int:
        return len(self._calls)

    def put(self, verb: str, key: str, message: bytes, ends: str = "") -> None:
        """`ends`: the request whose progress this makes needless."""
        self._progress.pop(ends, None)
        self._calls.append((verb, key, message))
        self._empty.clear()
        self._wanted.set()

    def progress(self, request_id: str, verb: str, key: str, message: bytes) -> None:
        if not self._progress:
            asyncio.get_running_loop().call_later(PROGRESS_S, self._flush_progress)
        self._progress[request_id] = (verb, key, message)

    def _flush_progress(self) -> None:
        calls, self._progress = self._progress, {}
        for call in calls.values():
            self.put(*call)

    async def flush(self, timeout_s: float) -> bool:
        """Wait until all that is in here now has been heard; False: it was not, in that time."""
        try:
            await asyncio.wait_for(self._empty.wait(), timeout_s)
        except TimeoutError:
            return False
        return True

    async def aclose(self, timeout_s: float) -> None:
        await self.flush(timeout_s)
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        pause = FIRST_PAUSE_S
        while True:
            await self._wanted.wait()
            batch = [self._calls[place] for place in range(min(BATCH, len(self._calls)))]
            try:
                if batch:
                    await self._send(batch)
            except Exception as error:  # whatever it is, they stay and are sent again
                log.debug("outbox waits", error=repr(error), calls=len(self._calls))
                await asyncio.sleep(pause)
                pause = min(pause * 2, LONGEST_PAUSE_S)
                continue
            pause = FIRST_PAUSE_S
            for _ in batch:
                self._calls.popleft()
            if not self._calls:
                self._wanted.clear()
                self._empty.set()
