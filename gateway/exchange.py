"""One HTTP exchange with a caller, over ASGI.

1. The body is read whole, bounded in size and in time, before anything is decided.
2. From then on one watcher waits for the caller to hang up; it cancels the task that serves the
   request, wherever that is waiting, and `gone` says that this was why. A caller that does not
   read its answer is gone as well, once its time is over.
3. Once the status line is out, errors can only travel inside the body.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from gateway.errors import ApiError, Outcome
from gateway.incoming import PATIENCE_S, SLOWEST, due
from metering.core.record import FinishReason

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]


class HungUp(Exception):
    """The caller closed the connection before its request was complete."""


class Exchange:
    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.headers: Headers = scope["headers"]
        self.given_id = ""  # of a proxy that may name requests
        self.always: Headers = []  # that every answer carries
        self.started = False
        self.gone = False
        self.left: FinishReason = "cancelled"  # how a caller that is gone left
        self._receive = receive
        self._send = send
        self._watcher: asyncio.Task[None] | None = None
        self._patience: asyncio.TimerHandle | None = None

    async def body(self, most: int, take: Callable[[int], object] = int) -> bytes:
        """The whole request body; `take` hears of each part that more will follow.

        Raises:
            ApiError: request_too_large past `most` bytes; invalid_request where it comes too
                slowly (`incoming.due`); what `take` raises.
            HungUp: the caller left while sending it.
        """
        parts: list[bytes] = []
        size = 0
        began = asyncio.get_running_loop().time()
        while True:
            message = await self._part(due(began, size), size)
            if message["type"] == "http.disconnect":
                raise HungUp
            part: bytes = message.get("body", b"")
            size += len(part)
            if size > most:
                raise ApiError(
                    Outcome.REQUEST_TOO_LARGE, f"The body is larger than {most} bytes, the limit."
                )
            parts.append(part)
            if not message.get("more_body", False):
                return parts[0] if len(parts) == 1 else b"".join(parts)
            take(len(part))

    async def _part(self, due_at: float, size: int) -> Message:
        try:
            async with asyncio.timeout_at(due_at):
                return await self._receive()
        except TimeoutError:
            raise ApiError(
                Outcome.INVALID_REQUEST,
                f"The body comes too slowly: {size} bytes of it have arrived. It may take "
                f"{PATIENCE_S:g} s, and a second more for each {SLOWEST} bytes.",
                headers=[(b"connection", b"close")],
            ) from None

    def watch(self) -> None:
        """From now on a caller that hangs up cancels the current task."""
        task = asyncio.current_task()
        assert task is not None
        self._task = task
        self._watcher = asyncio.create_task(self._watch())

    def expect_read_by(self, at: float) -> None:
        """A caller that has not taken all of its answer by then, on the loop's clock, is gone."""
        if self._patience is not None:
            self._patience.cancel()
        loop = asyncio.get_running_loop()
        self._patience = loop.call_at(at, self._leave, "timeout")

    async def _watch(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._leave("cancelled")

    def _leave(self, how: FinishReason) -> None:
        self.gone, self.left = True, how
        self._task.cancel()

    def unwatch(self) -> None:
        """Nothing cancels the task from here any more."""
        self._ignore_end()
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None

    def _ignore_end(self) -> None:
        if self._watcher is not None:
            self._watcher.cancel()
            self._watcher = None

    async def start(self, status: int, headers: Headers) -> None:
        self.started = True
        headers += self.always
        await self._send({"type": "http.response.start", "status": status, "headers": headers})

    async def write(self, chunk: bytes) -> None:
        await self._send({"type": "http.response.body", "body": chunk, "more_body": True})

    async def finish(self, chunk: bytes = b"") -> None:
        self._ignore_end()  # the server reports the end of a complete exchange as a hang-up too
        await self._send({"type": "http.response.body", "body": chunk, "more_body": False})

    async def respond(self, status: int, headers: Headers, body: bytes) -> None:
        """A complete answer in one go."""
        headers.append((b"content-length", b"%d" % len(body)))
        await self.start(status, headers)
        await self.finish(body)
