"""Time, memory and patience: each has its bound, and leaving early leaves nothing behind."""

from __future__ import annotations

import asyncio

import httpx
import pytest

from tests.integration.upstream.ask import PATIENCE_S, begun, fetch, pieces, send, until_still
from tests.integration.upstream.conftest import Build, Start
from tests.integration.upstream.server import CHUNKED, OK, Wire, answering, chunk

PIECE = b"x" * 65_536
PIECES = 768  # 48 MiB: well over what the kernel holds for a loopback connection


async def stall(wire: Wire) -> None:
    await wire.request()
    await wire.is_left()


async def test_a_connect_that_takes_too_long(
    transport: httpx.AsyncBaseTransport, deaf_port: int
) -> None:
    with pytest.raises(httpx.ConnectTimeout):
        await send(transport, f"http://127.0.0.1:{deaf_port}/v1", connect=0.05)


async def test_a_head_that_takes_too_long(
    transport: httpx.AsyncBaseTransport, engine: Start
) -> None:
    served = await engine(stall)
    with pytest.raises(httpx.ReadTimeout):
        await send(transport, served.url, read=0.05)


async def test_a_pause_in_the_body_that_takes_too_long(
    transport: httpx.AsyncBaseTransport, engine: Start
) -> None:
    served = await engine(answering(CHUNKED + chunk(b"one")))
    response = await begun(lambda: send(transport, served.url, read=0.5))
    body = aiter(pieces(response))
    assert await anext(body) == b"one"
    with pytest.raises(httpx.ReadTimeout):
        await anext(body)
    await response.aclose()


async def test_a_request_that_the_engine_does_not_read(
    transport: httpx.AsyncBaseTransport, engine: Start
) -> None:
    async def script(wire: Wire) -> None:
        wire.writer.transport.pause_reading()  # type: ignore[attr-defined]
        await asyncio.Event().wait()

    served = await engine(script)
    with pytest.raises(httpx.WriteTimeout):
        await send(transport, served.url, b"x" * 32 * 2**20, write=0.1)


async def test_no_limits_mean_no_limits(transport: httpx.AsyncBaseTransport, engine: Start) -> None:
    served = await engine(answering(OK))
    request = httpx.Request("POST", served.url, content=b"{}")
    response = await transport.handle_async_request(request)
    assert await response.aread() == b"ok"


async def test_a_timed_out_connection_is_closed_and_not_reused(
    make_transport: Build, engine: Start
) -> None:
    transport = make_transport(max_connections=1)
    left = asyncio.Event()

    async def script(wire: Wire) -> None:
        await wire.request()
        if len(served.wires) == 1:
            await wire.is_left()
            left.set()
        await wire.say(OK)

    served = await engine(script)
    with pytest.raises(httpx.ReadTimeout):
        await send(transport, served.url, read=0.05)
    async with asyncio.timeout(PATIENCE_S):
        await left.wait()
    assert await fetch(transport, served.url) == (200, b"ok")


# --- leaving early -------------------------------------------------------------------------------


async def test_the_engine_sees_at_once_that_a_stream_was_left(
    make_transport: Build, engine: Start
) -> None:
    transport = make_transport(max_connections=1)
    left = asyncio.Semaphore(0)

    async def script(wire: Wire) -> None:
        await wire.request()
        await wire.say(CHUNKED + chunk(b"one"))
        await wire.is_left()
        left.release()

    served = await engine(script)
    for _ in range(20):  # and no place in the pool is lost by it
        response = await send(transport, served.url)
        assert await anext(aiter(pieces(response))) == b"one"
        await response.aclose()
        async with asyncio.timeout(PATIENCE_S):
            await left.acquire()


async def test_closing_unread_an_answer_that_is_complete_keeps_the_connection(
    our_transport: httpx.AsyncBaseTransport, engine: Start
) -> None:
    served = await engine(answering(OK))
    for _ in range(3):
        response = await send(our_transport, served.url)
        await response.aclose()
    assert len(served.wires) == 1


async def test_closing_twice_and_late_harms_nobody(
    transport: httpx.AsyncBaseTransport, engine: Start
) -> None:
    served = await engine(answering(OK, CHUNKED + chunk(b"one")))
    first = await send(transport, served.url)
    assert await first.aread() == b"ok"
    second = await send(transport, served.url)  # on the same connection
    await first.aclose()
    await pieces(first).aclose()
    assert await anext(aiter(pieces(second))) == b"one"
    await second.aclose()
    await second.aclose()


@pytest.mark.parametrize("said", [b"", b"HTTP/1.1 200 OK\r\nConte", CHUNKED, CHUNKED + b"5\r\nhe"])
async def test_a_cancelled_reader_leaves_nothing_behind(
    make_transport: Build, engine: Start, said: bytes
) -> None:
    transport = make_transport(max_connections=1)
    stuck, left = asyncio.Event(), asyncio.Event()

    async def script(wire: Wire) -> None:
        await wire.request()
        if len(served.wires) > 1:
            await wire.say(OK)
            return
        await wire.say(said)
        stuck.set()
        await wire.is_left()
        left.set()

    served = await engine(script)
    reader = asyncio.create_task(fetch(transport, served.url))
    async with asyncio.timeout(PATIENCE_S):
        await stuck.wait()
        for _ in range(10):
            await asyncio.sleep(0)  # so that what was said has been read
        reader.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reader
        await left.wait()
    assert await fetch(transport, served.url) == (200, b"ok")


async def test_a_cancelled_connect_leaves_nothing_behind(
    make_transport: Build, deaf_port: int
) -> None:
    transport = make_transport(max_connections=1)
    url = f"http://127.0.0.1:{deaf_port}/v1"
    for _ in range(3):
        reader = asyncio.create_task(send(transport, url))
        for _ in range(10):
            await asyncio.sleep(0)
        reader.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reader
    with pytest.raises(httpx.ConnectTimeout):  # not PoolTimeout: the place is free
        await send(transport, url, connect=0.05, pool=0.05)


async def test_a_cancelled_wait_for_a_place_leaves_nothing_behind(
    make_ours: Build, engine: Start
) -> None:
    transport = make_ours(max_connections=1)  # the reference loses the place here
    served = await engine(answering(CHUNKED + chunk(b"more to come")))
    first = await send(transport, served.url)
    waiting = [asyncio.create_task(send(transport, served.url)) for _ in range(3)]
    for _ in range(10):
        await asyncio.sleep(0)
    waiting[0].cancel()
    await first.aclose()
    waiting[1].cancel()  # perhaps just as its turn came
    for result in await asyncio.gather(*waiting[:2], return_exceptions=True):
        if isinstance(result, httpx.Response):  # it had its answer before it was cancelled
            await result.aclose()
    second = await waiting[2]
    await second.aclose()
    third = await send(transport, served.url)
    await third.aclose()


async def test_cancelling_at_any_moment_never_costs_a_place(
    make_ours: Build, engine: Start
) -> None:
    transport = make_ours(max_connections=2)
    served = await engine(answering(CHUNKED + chunk(b"one") + chunk(b"two") + b"0\r\n\r\n"))
    for turns in range(40):
        reader = asyncio.create_task(fetch(transport, served.url))
        for _ in range(turns % 20):
            await asyncio.sleep(0)
        reader.cancel()
        await asyncio.wait([reader])
    answers = await asyncio.gather(*(fetch(transport, served.url) for _ in range(4)))
    assert answers == [(200, b"onetwo")] * 4


# --- memory --------------------------------------------------------------------------------------


async def test_a_slow_reader_slows_the_engine_down_and_loses_nothing(
    transport: httpx.AsyncBaseTransport, engine: Start
) -> None:
    async def script(wire: Wire) -> None:
        await wire.request()
        await wire.say(CHUNKED)
        for _ in range(PIECES):
            await wire.say(chunk(PIECE))
        await wire.say(b"0\r\n\r\n")

    served = await engine(script)
    response = await send(transport, served.url)
    body = aiter(pieces(response))
    received = len(await anext(body))
    sent = await until_still(lambda: served.wires[0].sent)
    assert sent < PIECES * len(PIECE) / 2
    received += sum([len(piece) async for piece in body])
    assert received == PIECES * len(PIECE)
    await response.aclose()


async def test_a_slow_reader_can_still_leave(
    transport: httpx.AsyncBaseTransport, engine: Start
) -> None:
    left = asyncio.Event()

    async def script(wire: Wire) -> None:
        await wire.request()
        await wire.say(CHUNKED)
        try:
            while True:
                await wire.say(chunk(PIECE))
        except OSError:
            left.set()

    served = await engine(script)
    response = await send(transport, served.url)
    await until_still(lambda: served.wires[0].sent)
    await response.aclose()
    async with asyncio.timeout(PATIENCE_S):
        await left.wait()
