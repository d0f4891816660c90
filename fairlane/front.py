"""What the console's door refuses before Django sees it: it needs no login to be said.

Django writes a body of any size to the disk before a view, or its login, looks at it; and a NUL in
an address is an error of PostgreSQL's wherever it is looked up. A host that is not ours, as of a
port scan, it would log as an error with a traceback.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import structlog
from django.conf import settings
from django.http.request import split_domain_port, validate_host

from gateway.incoming import due, told_length

NOT_OURS = b"The console is not served under this host name; ALLOWED_HOSTS lists those that are.\n"
TOO_SLOW = b"The body comes too slowly.\n"
BODY_BYTES = 32 * 2**20  # a policy of 10 000 tenants takes about four
TOO_LARGE = b"The body is larger than %d bytes, the limit.\n" % BODY_BYTES

log = structlog.get_logger("fairlane.front")

Message = MutableMapping[str, Any]
App = Callable[[Any, Any, Any], Awaitable[None]]


async def ask(app: App, scope: Any, receive: Any, send: Any) -> None:
    """Serve one call by `app`, or refuse it."""
    if "\x00" in scope["path"] or b"%00" in scope.get("query_string", b""):
        await refuse(send, 400, b"An address holds no NUL.\n")
    elif (host := _host(scope)) and not _is_ours(host):
        log.info("a host that is not in ALLOWED_HOSTS was asked for", host=host[:100])
        await refuse(send, 400, NOT_OURS)
    elif told_length(scope["headers"]) > BODY_BYTES:
        await refuse(send, 413, TOO_LARGE)
    else:
        await app(scope, _Bounded(receive, send), send)


def _host(scope: Any) -> str:
    """As Django takes it: the listener's own name where none was sent."""
    named = (v.decode("latin-1") for name, v in scope["headers"] if name == b"host")
    return next(named, "") or str((scope.get("server") or ("",))[0])


def _is_ours(host: str) -> bool:
    return validate_host(split_domain_port(host)[0], settings.ALLOWED_HOSTS)


class _Bounded:
    """A body without a length is counted as it comes, and must keep coming; past a bound, for
    Django, its caller has hung up."""

    def __init__(self, receive: Any, send: Any) -> None:
        self._receive = receive
        self._send = send
        self._left = BODY_BYTES
        self._began = asyncio.get_running_loop().time()
        self._is_whole = False

    async def __call__(self) -> Message:
        if self._is_whole:  # what Django waits for now is its caller's hang-up
            waited: Message = await self._receive()
            return waited
        try:
            async with asyncio.timeout_at(due(self._began, BODY_BYTES - self._left)):
                message: Message = await self._receive()
        except TimeoutError:
            return await self._cut_off(408, TOO_SLOW)
        self._left -= len(message.get("body", b""))
        self._is_whole = not message.get("more_body", False)
        return message if self._left >= 0 else await self._cut_off(413, TOO_LARGE)

    async def _cut_off(self, status: int, words: bytes) -> Message:
        await refuse(self._send, status, words)
        return {"type": "http.disconnect"}


async def refuse(send: Any, status: int, body: bytes) -> None:
    headers = [
        (b"content-type", b"text/plain; charset=utf-8"),
        (b"content-length", b"%d" % len(body)),
        (b"connection", b"close"),
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
