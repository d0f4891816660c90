"""The client over httpx's MockTransport and hand-made streams: the seam that other tests use."""

from __future__ import annotations

import asyncio
import gc
import time
import weakref
from collections.abc import AsyncIterator, Callable

import httpx
import pytest

from gateway.upstream.client import Answer, EngineClient
from tests.over_httpx import client_over

URL = "http://engine:9101/v1/chat/completions"


class Stream(httpx.AsyncByteStream):
    """Gives its pieces, then waits for ever."""

    def __init__(self, *pieces: bytes) -> None:
        self.pieces = pieces
        self.was_cancelled = False

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for piece in self.pieces:
            await asyncio.sleep(0)
            yield piece
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.was_cancelled = True
            raise


def client_for(answer: Callable[[httpx.Request], httpx.Response]) -> EngineClient:
    return client_over(httpx.MockTransport(answer))


async def send(
    client: EngineClient,
    headers: list[tuple[bytes, bytes]] | None = None,
    body: bytes = b"{}",
    method: str = "POST",
) -> Answer:
    return await client.send(method, URL, headers or [], body, connect_s=5, first_byte_s=120)


async def test_what_is_sent_is_what_was_given() -> None:
    seen: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(200, content=b"pong")

    client = client_for(answer)
    response = await send(client, [(b"x-request-id", b"r1")], b'{"model":"m"}')
    [request] = seen
    assert (request.method, str(request.url)) == ("POST", URL)
    assert request.content == b'{"model":"m"}'
    assert request.headers["x-request-id"] == "r1"
    assert [piece async for piece in client.iterate(response, 60)] == [b"pong"]
    await client.aclose()


async def test_host_and_framing_are_never_the_callers() -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        assert request.headers.raw == [(b"Host", b"engine:9101"), (b"Content-Length", b"2")]
        return httpx.Response(200)

    given = [(b"host", b"evil"), (b"Content-Length", b"9"), (b"transfer-encoding", b"chunked")]
    response = await send(client_for(answer), given)
    assert response.status == 200


async def test_a_get_has_no_length() -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        assert "content-length" not in request.headers
        return httpx.Response(200)

    assert (await send(client_for(answer), body=b"", method="GET")).status == 200


async def test_each_limit_reaches_the_transport_and_the_body_is_left_to_iterate() -> None:
    limits: list[dict[str, float | None]] = []
    seen: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        limits.append(dict(request.extensions["timeout"]))
        return httpx.Response(200)

    await send(client_for(answer))
    assert limits == [{"connect": 5, "pool": 5, "write": 120, "read": 120}]
    assert seen[0].extensions["timeout"]["read"] is None


async def test_an_answer_under_way_does_not_hold_the_body_that_was_asked() -> None:
    asked: list[weakref.ref[httpx.Request]] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(weakref.ref(request))
        return httpx.Response(200, stream=Stream(b"pong"))

    response = await send(client_for(answer))
    assert response.status == 200
    gc.collect()
    assert asked[0]() is None


async def iterate_until_late(stream: Stream, **limits: float) -> tuple[list[bytes], str]:
    client = client_for(lambda request: httpx.Response(200, stream=stream))
    response = await send(client)
    got: list[bytes] = []

    async def read() -> None:
        async for piece in client.iterate(response, **limits):  # type: ignore[arg-type]
            got.append(piece)

    with pytest.raises(httpx.ReadTimeout) as late:
        await read()
    await response.aclose()
    current = asyncio.current_task()
    assert current is not None
    assert current.cancelling() == 0
    return got, str(late.value)


async def test_a_pause_longer_than_the_idle_limit_ends_it() -> None:
    stream = Stream(b"a", b"b")
    got, why = await iterate_until_late(stream, idle_s=0.1)
    assert got == [b"a", b"b"]
    assert why == "nothing arrived for 0.1 s"
    assert stream.was_cancelled


async def test_the_first_piece_has_its_own_limit() -> None:
    got, why = await iterate_until_late(Stream(), idle_s=600, first_s=0.1)
    assert (got, why) == ([], "nothing arrived for 0.1 s")


async def test_the_deadline_ends_a_wait() -> None:
    got: list[bytes] = []
    async with asyncio.timeout(60):
        while not got:  # on a busy machine it may be over before anything was waited for
            stream = Stream(b"a")
            got, why = await iterate_until_late(stream, idle_s=600, deadline=time.monotonic() + 0.1)
            assert why == "the answer was not complete in time"
    assert got == [b"a"]
    assert stream.was_cancelled


async def test_the_deadline_ends_a_stream_that_never_pauses() -> None:
    class Endless(Stream):
        async def __aiter__(self) -> AsyncIterator[bytes]:
            while True:
                yield b"x"

    _, why = await iterate_until_late(Endless(), idle_s=600, deadline=time.monotonic() + 0.1)
    assert why == "the answer was not complete in time"


async def test_a_slow_caller_is_not_a_slow_engine() -> None:
    """The limits run only while the engine is waited for."""
    body = Stream(b"a", b"b")
    client = client_for(lambda request: httpx.Response(200, stream=body))
    response = await send(client)
    pieces = client.iterate(response, idle_s=0.1)
    assert await anext(pieces) == b"a"
    await asyncio.sleep(0.25)  # longer than the limit: the point of the test
    assert await anext(pieces) == b"b"
    await response.aclose()


async def test_a_cancelled_caller_is_cancelled_not_late() -> None:
    stream = Stream(b"a")
    client = client_for(lambda request: httpx.Response(200, stream=stream))
    response = await send(client)
    started = asyncio.Event()

    async def read() -> None:
        async for _ in client.iterate(response, idle_s=600):
            started.set()

    reader = asyncio.create_task(read())
    await started.wait()
    await asyncio.sleep(0)
    reader.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reader
    assert stream.was_cancelled


async def test_a_cancel_in_the_moment_of_the_limit_is_still_a_cancel() -> None:
    class Stubborn(Stream):
        async def __aiter__(self) -> AsyncIterator[bytes]:
            try:
                await asyncio.Event().wait()
            finally:
                reader.cancel()  # the caller leaves while the limit is being dealt with
            yield b""

    client = client_for(lambda request: httpx.Response(200, stream=Stubborn()))
    response = await send(client)

    async def read() -> None:
        await anext(client.iterate(response, idle_s=0.1))

    reader = asyncio.create_task(read())
    with pytest.raises(asyncio.CancelledError):
        await reader
