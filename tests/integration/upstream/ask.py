"""Short ways to say what the tests ask of a transport."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

import httpx

PATIENCE_S = 60.0  # a test that waits longer than this has failed; nothing measures time


def request(
    url: str, body: bytes = b'{"model":"m"}', method: str = "POST", **timeouts: float | None
) -> httpx.Request:
    limits = {"connect": PATIENCE_S, "read": PATIENCE_S, "write": PATIENCE_S, "pool": PATIENCE_S}
    return httpx.Request(
        method, url, content=body or None, extensions={"timeout": {**limits, **timeouts}}
    )


async def send(
    transport: httpx.AsyncBaseTransport, url: str, body: bytes = b"{}", **options: object
) -> httpx.Response:
    """Only the head; the body is still to be read."""
    return await transport.handle_async_request(request(url, body, **options))  # type: ignore[arg-type]


async def begun(send: Callable[[], Awaitable[httpx.Response]]) -> httpx.Response:
    """The head of an answer that has a short limit: asked for again where a busy machine let not
    even that come in time."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            with contextlib.suppress(httpx.ReadTimeout):
                return await send()


async def fetch(
    transport: httpx.AsyncBaseTransport, url: str, body: bytes = b"{}", **options: object
) -> tuple[int, bytes]:
    response = await send(transport, url, body, **options)
    try:
        return response.status_code, b"".join([piece async for piece in pieces(response)])
    finally:
        await response.aclose()


def pieces(response: httpx.Response) -> httpx.AsyncByteStream:
    assert isinstance(response.stream, httpx.AsyncByteStream)
    return response.stream


async def until_still(value: Callable[[], int], looks: int = 20) -> int:
    """Wait for a count that does not move any more."""
    last, same = value(), 0
    async with asyncio.timeout(PATIENCE_S):
        while same < looks:
            await asyncio.sleep(0.01)
            same = same + 1 if value() == last else 0
            last = value()
    return last
