"""One HTTP exchange with a caller, over ASGI.

1. The body is read whole, bounded in size and in time, before anything is decided.
2. From then on a caller that hangs up cancels the task that serves the request, wherever that is
   waiting, and `gone` says that this was why. A caller that does not read its answer is gone as
   well, once its time is over.
3. Once the status line is out, errors can only travel inside the body.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from types import MappingProxyType
from typing import Any

from gateway.errors import ApiError, Outcome
from gateway.incoming import PATIENCE_S, SLOWEST, due, told_length
from gateway.upstream.alarm import Alarm
from gateway.wire.headers import Headers
from metering.core.record import FinishReason

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

# Extensions of ASGI that `serve` has. A future that is done once the caller's connection is lost:
# waiting for `http.disconnect` does the same, with a task for each request. And a way to send a
# complete answer at once: two messages do the same, each looked at again by the server.
LOST = "fairlane.lost"
WHOLE = "fairlane.whole"
NONE: Mapping[str, Any] = MappingProxyType({})


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
        extensions = scope.get("extensions", NONE)
        lost, whole = extensions.get(LOST), extensions.get(WHOLE)
        self._lost: asyncio.Future[None] | None = lost["future"] if lost else None
        self._send_whole: Callable[[Headers, bytes], bool] | None = whole["send"] if whole else None
        self._watcher: asyncio.Task[None] | None = None
        self._is_watched = False
        self._is_whole = False  # its body is here
        self._alarm: Alarm | None = None

    async def body(self, most: int, take: Callable[[int], object] = int) -> bytes:
        """The whole request body; `take` hears of each part that more will follow.

        Raises:
            ApiError: request_too_large past `most` bytes; invalid_request where it comes too
                slowly (`incoming.due`); what `take` raises.
            HungUp: the caller left while sending it.
        """
        parts: list[bytes] = []
        size = 0
        loop = asyncio.get_running_loop()
        task = self._task = current_task()
        self._alarm = alarm = Alarm(loop, self._lose_patience)
        began = loop.time()
        while True:
            alarm.set(due(began, size))
            message = await self._part(task, size)
            if message["type"] == "http.disconnect":
                raise HungUp
            part: bytes = message.get("body", b"")
            size += len(part)
            parts.append(part)
            more = message.get("more_body", False)
            if size > most or (more and len(parts) == 1 and told_length(self.headers) > most):
                raise ApiError(
                    Outcome.REQUEST_TOO_LARGE, f"The body is larger than {most} bytes, the limit."
                )
            if not more:
                alarm.lift()
                self._is_whole = True
                return parts[0] if len(parts) == 1 else b"".join(parts)
            take(len(part))

    async def _part(self, task: asyncio.Task[Any], size: int) -> Message:
        cancels = task.cancelling()
        try:
            return await self._receive()
        except asyncio.CancelledError:
            if self.left != "timeout" or task.uncancel() > cancels:
                raise
            self.left = "cancelled"
            raise ApiError(
                Outcome.INVALID_REQUEST,
                f"The body comes too slowly: {size} bytes of it have arrived. It may take "
                f"{PATIENCE_S:g} s, and a second more for each {SLOWEST} bytes.",
                headers=[(b"connection", b"close")],
            ) from None

    def watch(self) -> None:
        """From now on a caller that hangs up cancels the current task."""
        self._task = current_task()
        self._is_watched = True
        if self._lost is not None:
            self._lost.add_done_callback(self._hung_up)
        else:
            self._watcher = asyncio.create_task(self._watch())

    def expect_read_by(self, at: float) -> None:
        """A caller that has not taken all of its answer by then, on the loop's clock, is gone."""
        assert self._alarm is not None
        self._alarm.set(at)

    async def _watch(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._hung_up()

    def _hung_up(self, lost: object = None) -> None:
        if self._is_watched:
            self.gone = True
            self._task.cancel()

    def _lose_patience(self) -> None:
        """The body is late; or, where that is whole, its answer is still unread."""
        self.gone, self.left = self._is_whole, "timeout"
        self._task.cancel()

    def unwatch(self) -> None:
        """Nothing cancels the task from here any more."""
        self._ignore_end()
        if self._alarm is not None:
            self._alarm.stop()

    def _ignore_end(self) -> None:
        self._is_watched = False
        if self._watcher is not None:
            self._watcher.cancel()
            self._watcher = None
        elif self._lost is not None:
            self._lost.remove_done_callback(self._hung_up)

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
        if status == 200 and self._send_whole is not None:
            self._ignore_end()
            self.started = True
            if self._send_whole([*headers, *self.always], body):
                return
        await self.start(status, headers)
        await self.finish(body)


def current_task() -> asyncio.Task[Any]:
    task = asyncio.current_task()
    assert task is not None
    return task
