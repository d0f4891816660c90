"""What a connection may send before anybody knows who is asking: bounded in bytes and in time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
import uvicorn

from fairlane import http
from fairlane.connections import CountedHttp
from fairlane.http import HEAD_BYTES, BoundedHttp, HeadHolder
from gateway.exchange import Exchange

START = b"POST / HTTP/1.1\r\nHost: x\r\n"
CHUNKED = START + b"Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n"
PATIENCE_S = 60.0


async def app(scope: Any, receive: Any, send: Any) -> None:
    """Answers with the length of what it was sent, after the seconds that the path names, and with
    the names of its headers."""
    size, more = 0, True
    while more:
        message = await receive()
        size += len(message.get("body", b""))
        more = message.get("more_body", False)
    await asyncio.sleep(float(scope["path"][1:] or 0))
    answer = b"%d" % size
    names = b" ".join(name for name, _ in scope["headers"])
    headers = [(b"content-length", b"%d" % len(answer)), (b"x-names", names)]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": answer})


async def at_once(scope: Any, receive: Any, send: Any) -> None:
    exchange = Exchange(scope, receive, send)
    body = await exchange.body(1000)
    await exchange.respond(200, [(b"x-path", scope["raw_path"])], b"<%b>" % body)
    exchange.unwatch()


async def in_two_messages(scope: Any, receive: Any, send: Any) -> None:
    await at_once({**scope, "extensions": {}}, receive, send)


@asynccontextmanager
async def served(app: Any = app, http: Any = BoundedHttp) -> AsyncIterator[int]:
    config = uvicorn.Config(
        app, port=0, http=http, lifespan="off", log_config=None, date_header=False
    )
    server = uvicorn.Server(config)
    serving = asyncio.create_task(server._serve())
    while not server.started:
        await asyncio.sleep(0.01)
    yield server.servers[0].sockets[0].getsockname()[1]
    server.should_exit = True
    await serving


async def told(
    *pieces: bytes, pause_s: float = 0.0, by: Any = app, http: Any = BoundedHttp
) -> bytes:
    """What comes back until the server closes the connection."""
    async with served(by, http) as port, asyncio.timeout(PATIENCE_S):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            for piece in pieces:
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(pause_s)
            return await reader.read()
        except ConnectionError:
            return b"reset"
        finally:
            writer.close()


async def in_pieces(scope: Any, receive: Any, send: Any) -> None:
    """A stream, as of an engine: nobody knows how long it will be."""
    await send({"type": "http.response.start", "status": 200, "headers": [(b"x-a", b"b")]})
    for piece in (b"one ", b"two ", b""):
        await send({"type": "http.response.body", "body": piece, "more_body": bool(piece)})


async def test_who_speaks_http_1_0_gets_no_chunks() -> None:
    head, _, body = (await told(b"GET / HTTP/1.0\r\n\r\n", by=in_pieces)).partition(b"\r\n\r\n")
    assert b"connection: close" in head
    assert b"transfer-encoding" not in head
    assert body == b"one two "
    head, _, body = (await told(b"HEAD / HTTP/1.0\r\n\r\n", by=in_pieces)).partition(b"\r\n\r\n")
    assert (b"x-a: b" in head, body) == (True, b"")
    framed = (await told(b"GET / HTTP/1.0\r\n\r\n")).partition(b"\r\n\r\n")
    assert (b"content-length: 1" in framed[0], framed[2]) == (True, b"0")
    assert b"4\r\none \r\n" in await told(LAST, by=in_pieces)


WISH = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n"
FRAMED = b"Content-Length: 3\r\n\r\nabc"
IN_CHUNKS = b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"
LAST = START + b"Connection: close\r\n\r\n"


@pytest.mark.parametrize("wish", [WISH, WISH.replace(b"h2c", b"websocket"), WISH.lower()])
@pytest.mark.parametrize("body", [FRAMED, IN_CHUNKS])
@pytest.mark.parametrize("size", [1, 50, 10_000])
@pytest.mark.parametrize("http", [BoundedHttp, CountedHttp])
async def test_a_wish_for_another_protocol_is_passed_over(
    http: Any, wish: bytes, body: bytes, size: int
) -> None:
    """Java's client sends one with each call, and the body with it."""
    sent = (START + wish + body) * 2 + LAST
    pieces = [sent[at : at + size] for at in range(0, len(sent), size)]
    answers = await told(*pieces, http=http)
    first, second, last = answers.split(b"HTTP/1.1 200 OK")[1:]
    assert (first[-1:], second[-1:], last[-1:]) == (b"3", b"3", b"0")


@pytest.mark.parametrize(
    "rest", [b"Host: y\r\n" + FRAMED, b"Content-Length: 1\r\n" + IN_CHUNKS, b"X-A: b\x00\r\n\r\n"]
)
async def test_a_wish_takes_no_check_away(rest: bytes) -> None:
    assert (await told(START + WISH + rest)).startswith(b"HTTP/1.1 400")


async def test_a_trailer_is_no_header() -> None:
    """A key, a lane or a forwarded address behind the body passes by what a proxy looks at."""
    head = START + b"Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n"
    answer = await told(head + b"1\r\na\r\n0\r\nX-Api-Key: other\r\n\r\n")
    assert b"x-names: host connection transfer-encoding\r\n" in answer
    assert answer.endswith(b"\r\n\r\n1")


POST = b"POST /%d HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n"
CLOSE = b"Connection: close\r\n\r\n"


@pytest.mark.parametrize(
    "asked",
    [
        POST % 1 + CLOSE + b"ab",
        POST % 1 + b"\r\nab" + POST % 2 + CLOSE + b"cd",
        POST % 1 + b"\r\nab" + POST % 2 + b"\r\ncd" + POST % 3 + CLOSE + b"ef",
        b"HEAD /1 HTTP/1.1\r\nHost: x\r\n" + CLOSE,
        b"GET /1 HTTP/1.0\r\n\r\n",
        POST % 1 + b"Expect: 100-continue\r\n" + CLOSE + b"ab",
    ],
)
async def test_an_answer_sent_at_once_is_what_two_messages_make(asked: bytes) -> None:
    whole = await told(asked, by=at_once)
    assert whole == await told(asked, by=in_two_messages)
    assert whole.count(b" 200 OK\r\n") == asked.count(b"Host: x") or b"1.0" in asked


@pytest.mark.parametrize(
    "pieces",
    [
        [START + b"X-Long: ", *[b"a" * HEAD_BYTES] * 200],
        [START, *[b"X-Many: b\r\n" * 6000] * 20],
        [b"GET /", *[b"a" * HEAD_BYTES] * 200],
        [b"\r\n" * HEAD_BYTES] * 20,
        [CHUNKED + b"X-Trailer: ", *[b"a" * HEAD_BYTES] * 200],
    ],
    ids=["one header", "many headers", "an address", "empty lines", "a trailer"],
)
async def test_a_head_that_never_ends_is_cut_off_at_once(pieces: list[bytes]) -> None:
    began = time.process_time()  # other processes may have the machine
    answer = await told(*pieces)
    assert answer == b"reset" or answer.startswith(b"HTTP/1.1 400 ")
    assert time.process_time() - began < 2


async def test_a_large_head_within_the_bound_and_a_larger_body_pass() -> None:
    head = START + b"X-Long: " + b"a" * (HEAD_BYTES - 100) + b"\r\nConnection: close\r\n"
    body = b"b" * (4 * HEAD_BYTES)
    answer = await told(head + b"Content-Length: %d\r\n\r\n" % len(body), body)
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert answer.endswith(b"\r\n\r\n%d" % len(body))


@pytest.mark.parametrize("pieces", [[], [START], [b"P", b"O", b"S", b"T", b" ", b"/"]])
async def test_a_head_that_does_not_come_loses_its_connection(
    pieces: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "HEAD_SECONDS", 0.2)
    assert await told(*pieces, pause_s=0.02) in (b"", b"reset")  # perhaps in the middle of it


async def test_a_body_may_take_longer_and_so_may_an_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http, "HEAD_SECONDS", 0.3)
    slow = b"POST /0.5 HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 4\r\n\r\n"
    answer = b""
    async with asyncio.timeout(PATIENCE_S):
        while answer in (b"", b"reset"):  # a busy machine may not bring even the head in time
            answer = await told(slow + b"a", b"bc", b"d\r\n", pause_s=0.2)
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert answer.endswith(b"\r\n\r\n4")


async def test_a_hang_up_is_seen_after_a_large_body_that_came_at_once() -> None:
    """uvicorn had stopped reading: the call ran on, and held its place, for nobody."""
    has_body, ended = asyncio.Event(), asyncio.Event()
    made: list[BoundedHttp] = []

    class Known(BoundedHttp):
        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            made.append(self)

    async def works(scope: Any, receive: Any, send: Any) -> None:
        exchange = Exchange(scope, receive, send)
        await exchange.body(1_000_000)
        exchange.watch()
        has_body.set()
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        ended.set()

    async with served(works, Known) as port, asyncio.timeout(PATIENCE_S):
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(START + b"Content-Length: 100000\r\n\r\n")
        while not (made and made[0]._in_body):
            await asyncio.sleep(0.01)
        made[0].data_received(b"x" * 100_000)  # in one read, as a fast network has it
        await has_body.wait()
        writer.close()
        await ended.wait()


@pytest.mark.parametrize(
    "head",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nX-A: b\r\nhOST: b\r\n\r\n",
        b"GET / HTTP/1.0\r\nHost: a\r\nHost: b\r\n\r\n",
    ],
    ids=["none", "twice", "two names", "two in 1.0"],
)
async def test_a_request_that_does_not_name_its_host_once_is_refused(head: bytes) -> None:
    """RFC 9112, 3.2: a proxy in front may have gone by another of them."""
    answer = await told(head)
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert answer.endswith(b"\r\n\r\n" + http.HOSTS.encode())


@pytest.mark.parametrize("host", [b"", b"Host:\r\n", b"Host: x\r\n"], ids=["none", "empty", "x"])
async def test_http_1_0_knows_no_host_yet(host: bytes) -> None:
    assert (await told(b"GET / HTTP/1.0\r\n" + host + b"\r\n")).startswith(b"HTTP/1.1 200 ")


class Below:
    """What would have gone out, one text a write."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.is_closed = False

    def write(self, data: bytes) -> None:
        self.sent.append(data)

    def writelines(self, parts: tuple[bytes, ...]) -> None:
        self.sent.append(b"".join(parts))

    def close(self) -> None:
        self.is_closed = True

    def is_closing(self) -> bool:
        return self.is_closed


async def test_a_head_goes_out_with_the_beginning_of_its_body_in_one_write() -> None:
    below = Below()
    holder = HeadHolder(below, asyncio.get_running_loop())
    for _ in range(2):
        holder.hold_next()
        for data in (b"head ", b"first ", b"second "):
            holder.write(data)
    assert below.sent == [b"head first ", b"second "] * 2
    await asyncio.sleep(0)
    assert len(below.sent) == 4


async def test_a_head_whose_body_does_not_come_yet_goes_out_by_itself() -> None:
    below = Below()
    holder = HeadHolder(below, asyncio.get_running_loop())
    holder.hold_next()
    holder.write(b"head ")
    await asyncio.sleep(0)
    holder.write(b"late ")
    assert below.sent == [b"head ", b"late "]


async def test_a_head_goes_out_before_its_connection_is_closed() -> None:
    below = Below()
    holder = HeadHolder(below, asyncio.get_running_loop())
    holder.hold_next()
    holder.write(b"head ")
    holder.close()
    assert below.sent == [b"head "]
    assert below.is_closed
