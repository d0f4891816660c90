"""Every way in which an engine can frame an answer comes out as the same bytes."""

from __future__ import annotations

import asyncio

import httpx
import pytest

from tests.integration.upstream.ask import fetch, pieces, send
from tests.integration.upstream.conftest import Start
from tests.integration.upstream.server import CHUNKED, OK, Wire, answering, chunk, closing


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", id="length"),
        pytest.param(CHUNKED + b"2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n", id="chunked"),
        pytest.param(CHUNKED + b"5;a=b\r\nhello\r\n0\r\nX-T: 1\r\n\r\n", id="trailers"),
        pytest.param(b"HTTP/1.1 200 OK\r\n\r\nhello", id="until close"),
        pytest.param(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nhello", id="close"),
        pytest.param(b"HTTP/1.0 200 OK\r\n\r\nhello", id="1.0"),
        pytest.param(b"HTTP/1.1 100 Continue\r\n\r\n" + OK[:-2] + b"ok", id="100"),
        pytest.param(
            b"HTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: <a>\r\n\r\n" + OK,
            id="several interim",
        ),
    ],
)
async def test_a_body_arrives_whole_however_it_is_framed(
    transport: httpx.AsyncBaseTransport, engine: Start, answer: bytes
) -> None:
    served = await engine(closing(answer))
    assert await fetch(transport, served.url) in ((200, b"hello"), (200, b"ok"))


@pytest.mark.parametrize(
    ("method", "answer", "status"),
    [
        ("HEAD", b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", 200),
        ("HEAD", CHUNKED, 200),
        ("GET", b"HTTP/1.1 204 No Content\r\n\r\n", 204),
        ("GET", b"HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n", 304),
        ("GET", b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", 200),
    ],
)
async def test_an_answer_without_a_body_ends_at_its_head(
    transport: httpx.AsyncBaseTransport, engine: Start, method: str, answer: bytes, status: int
) -> None:
    served = await engine(answering(answer))
    for _ in range(2):
        assert await fetch(transport, served.url, b"", method=method) == (status, b"")


async def test_head_and_headers_come_through_unchanged(
    transport: httpx.AsyncBaseTransport, engine: Start
) -> None:
    head = b"HTTP/1.1 429 Slow Down\r\nRetry-After: 7\r\nX-Many: a\r\nX-Many: b\r\nX-Odd: \xe9\r\n"
    served = await engine(answering(head + b"Content-Length: 0\r\n\r\n"))
    response = await send(transport, served.url)
    await response.aclose()
    assert response.status_code == 429
    assert response.headers["retry-after"] == "7"
    assert response.headers.get_list("x-many") == ["a", "b"]
    assert (b"X-Odd", b"\xe9") in response.headers.raw
    assert response.extensions["http_version"] == b"HTTP/1.1"


async def test_events_arrive_one_by_one_as_the_engine_sends_them(
    transport: httpx.AsyncBaseTransport, engine: Start
) -> None:
    turn = asyncio.Semaphore(0)

    async def script(wire: Wire) -> None:
        await wire.request()
        await wire.say(CHUNKED)
        for number in range(5):
            await turn.acquire()
            await wire.say(chunk(b"data: %d\n\n" % number))
        await wire.say(b"0\r\n\r\n")

    served = await engine(script)
    response = await send(transport, served.url)
    body = aiter(pieces(response))
    for number in range(5):
        turn.release()
        assert await anext(body) == b"data: %d\n\n" % number
    with pytest.raises(StopAsyncIteration):
        await anext(body)
    await response.aclose()


async def test_an_event_split_over_reads_and_chunks_loses_nothing(
    transport: httpx.AsyncBaseTransport, engine: Start
) -> None:
    event = b'data: {"usage":{"prompt_tokens":12,"completion_tokens":34}}\n\n'
    wire_bytes = b"".join(chunk(event[i : i + 7]) for i in range(0, len(event), 7))

    async def script(wire: Wire) -> None:
        await wire.request()
        await wire.say(CHUNKED)
        for at in range(len(wire_bytes)):
            await wire.say(wire_bytes[at : at + 1])
            await asyncio.sleep(0)  # so that the reader sees it apart from the next
        await wire.say(b"0\r\n\r\n")

    served = await engine(script)
    assert await fetch(transport, served.url) == (200, event)


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"HTTP/1.1 200 OK\r\nContent-Le", id="cut in the head"),
        pytest.param(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello", id="cut in the body"),
        pytest.param(CHUNKED + b"5\r\nhello\r\n", id="cut before the last chunk"),
        pytest.param(CHUNKED + b"zz\r\nhello\r\n0\r\n\r\n", id="bad chunk size"),
        pytest.param(b"SMTP ready\r\n\r\n", id="not HTTP"),
        pytest.param(b"HTTP/1.1 abc OK\r\n\r\n", id="bad status"),
        pytest.param(
            b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab", id="two lengths"
        ),
        pytest.param(b"HTTP/1.1 200 OK\r\nX: " + b"a" * 200_000 + b"\r\n\r\n", id="endless header"),
        pytest.param(
            b"HTTP/1.1 200 OK\r\n" + b"X: a\r\n" * 40_000 + b"Content-Length: 0\r\n\r\n",
            id="endless headers",
        ),
    ],
)
async def test_a_broken_answer_is_a_protocol_error(
    transport: httpx.AsyncBaseTransport, engine: Start, answer: bytes
) -> None:
    served = await engine(closing(answer))
    with pytest.raises((httpx.RemoteProtocolError, httpx.ReadError)):
        await fetch(transport, served.url)
    assert len(served.wires) == 1


async def test_what_came_before_the_break_is_delivered_first(
    transport: httpx.AsyncBaseTransport, engine: Start
) -> None:
    served = await engine(closing(CHUNKED + chunk(b"half")))
    response = await send(transport, served.url)
    body = aiter(pieces(response))
    assert await anext(body) == b"half"
    with pytest.raises(httpx.RemoteProtocolError):
        await anext(body)
    await response.aclose()


async def test_a_large_request_and_a_large_answer_pass(
    transport: httpx.AsyncBaseTransport, engine: Start
) -> None:
    async def script(wire: Wire) -> None:
        body = (await wire.request()).split(b"\r\n\r\n", 1)[1]
        await wire.say(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)

    served = await engine(script)
    body = bytes(range(256)) * 16_384
    assert await fetch(transport, served.url, body) == (200, body)
