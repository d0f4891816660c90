"""The little of HTTP that the engine needs on top of ASGI."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

JSON = b"application/json"


def headers_of(scope: Scope) -> dict[str, str]:
    """By lower-case name; of one that comes twice, the last."""
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}


class ClientGone(Exception):
    """The connection closed before the request was there."""


async def read_body(receive: Receive) -> bytes:
    """Raises ClientGone."""
    parts = []
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        parts.append(message.get("body", b""))
        if not message.get("more_body"):
            return b"".join(parts)


async def start(
    send: Send, status: int, content_type: bytes, headers: list[tuple[bytes, bytes]] | None = None
) -> None:
    listed = [(b"content-type", content_type), *(headers or [])]
    await send({"type": "http.response.start", "status": status, "headers": listed})


async def respond(
    send: Send,
    status: int,
    body: bytes,
    content_type: bytes = JSON,
    headers: list[tuple[bytes, bytes]] | None = None,
) -> None:
    length = (b"content-length", str(len(body)).encode())
    await start(send, status, content_type, [length, *(headers or [])])
    await send({"type": "http.response.body", "body": body})


class HangUp:
    """Cancels the current task as soon as the client is gone; the body must have been read."""

    def __init__(self, receive: Receive) -> None:
        self.happened = False
        self._task = asyncio.current_task()
        self._watch = asyncio.get_running_loop().create_task(self._listen(receive))

    async def _listen(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self.happened = True
        if self._task is not None:
            self._task.cancel()

    def stop(self) -> None:
        self._watch.cancel()
