"""The gateway's client over real sockets, with each transport under it."""

from __future__ import annotations

import asyncio

import httpx
import pytest

from gateway.upstream.client import EngineClient
from tests.integration.upstream.ask import PATIENCE_S, begun
from tests.integration.upstream.conftest import Start
from tests.integration.upstream.server import CHUNKED, OK, Wire, answering, chunk
from tests.over_httpx import client_over


async def send(client: EngineClient, url: str, first_byte_s: float = PATIENCE_S) -> httpx.Response:
    return await client.send(
        "POST", url, [(b"X-A", b"b")], b"{}", connect_s=PATIENCE_S, first_byte_s=first_byte_s
    )


async def test_a_request_reaches_the_engine_as_it_was_given(
    transport: httpx.AsyncBaseTransport, engine: Start
) -> None:
    seen: list[bytes] = []

    async def script(wire: Wire) -> None:
        seen.append(await wire.request())
        await wire.say(OK)

    served = await engine(script)
    client = client_over(transport)
    response = await send(client, served.url)
    assert [piece async for piece in client.iterate(response, PATIENCE_S)] == [b"ok"]
    await response.aclose()
    host = b"Host: 127.0.0.1:%d\r\n" % served.port
    head = b"POST /v1/chat/completions HTTP/1.1\r\n" + host + b"X-A: b\r\nContent-Length: 2\r\n\r\n"
    assert seen == [head + b"{}"]


async def test_an_engine_that_does_not_begin_is_late(
    transport: httpx.AsyncBaseTransport, engine: Start
) -> None:
    async def script(wire: Wire) -> None:
        await wire.request()
        await wire.is_left()

    served = await engine(script)
    with pytest.raises(httpx.ReadTimeout):
        await send(client_over(transport), served.url, first_byte_s=0.05)


async def test_a_stream_may_pause_for_longer_than_its_beginning_may_take(
    transport: httpx.AsyncBaseTransport, engine: Start
) -> None:
    async def script(wire: Wire) -> None:
        await wire.request()
        await wire.say(CHUNKED + chunk(b"one"))
        await asyncio.sleep(0.8)  # longer than first_byte_s: the point of the test
        await wire.say(chunk(b"two") + b"0\r\n\r\n")

    served = await engine(script)
    client = client_over(transport)
    response = await begun(lambda: send(client, served.url, first_byte_s=0.6))
    got = [piece async for piece in client.iterate(response, PATIENCE_S)]
    await response.aclose()
    assert got == [b"one", b"two"]


async def test_a_stream_that_pauses_too_long_is_left_at_once(
    transport: httpx.AsyncBaseTransport, engine: Start
) -> None:
    left = asyncio.Event()

    async def script(wire: Wire) -> None:
        await wire.request()
        await wire.say(CHUNKED + chunk(b"one"))
        await wire.is_left()
        left.set()

    served = await engine(script)
    client = client_over(transport)
    response = await send(client, served.url)
    pieces = client.iterate(response, idle_s=0.05)
    assert await anext(pieces) == b"one"
    with pytest.raises(httpx.ReadTimeout):
        await anext(pieces)
    async with asyncio.timeout(PATIENCE_S):
        await left.wait()
    await response.aclose()


async def test_many_streams_at_once_keep_apart(
    transport: httpx.AsyncBaseTransport, engine: Start
) -> None:
    async def script(wire: Wire) -> None:
        while True:
            await wire.request()
            await wire.say(CHUNKED)
            for number in range(20):
                await wire.say(chunk(b"%d;" % number))
                await asyncio.sleep(0)
            await wire.say(b"0\r\n\r\n")

    served = await engine(script)
    client = client_over(transport)

    async def read() -> bytes:
        response = await send(client, served.url)
        try:
            return b"".join([piece async for piece in client.iterate(response, PATIENCE_S)])
        finally:
            await response.aclose()

    answers = await asyncio.gather(*(read() for _ in range(60)))
    assert answers == [b"".join(b"%d;" % number for number in range(20))] * 60


async def test_a_broken_engine_does_not_break_the_next_request(
    transport: httpx.AsyncBaseTransport, engine: Start
) -> None:
    served = await engine(answering(CHUNKED + b"zz\r\n"))
    client = client_over(transport)
    for number in range(1, 3):
        response = await send(client, served.url)
        with pytest.raises(httpx.RemoteProtocolError):
            await anext(client.iterate(response, PATIENCE_S))
        await response.aclose()
        assert len(served.wires) == number
