"""The connection without a socket: what it makes of bytes, however they are cut."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import weakref
from collections.abc import Iterator
from itertools import pairwise

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.upstream.connection import HEAD_LIMIT, Connection
from gateway.upstream.exchange import HIGH_WATER, Exchange


class Socket(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.unsent = 0
        self.aborted = False
        self.paused = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += bytes(data)

    def get_write_buffer_size(self) -> int:
        return self.unsent

    def is_closing(self) -> bool:
        return self.aborted

    def abort(self) -> None:
        self.aborted = True

    def pause_reading(self) -> None:
        assert not self.paused
        self.paused = True

    def resume_reading(self) -> None:
        assert self.paused
        self.paused = False


class Bench:
    """A connection between a socket and a pool that only keep notes."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.freed_count = self.lost_count = 0
        self.socket = Socket()
        self.connection = Connection(loop, self)
        self.connection.connection_made(self.socket)

    def freed(self, connection: Connection) -> None:
        self.freed_count += 1

    def lost(self, connection: Connection) -> None:
        self.lost_count += 1

    def start(self, method: str = "POST", **timeouts: float) -> Exchange:
        return self.connection.start(method, [b"request"], timeouts)

    def hear(self, *reads: bytes) -> None:
        for read in reads:
            self.connection.data_received(read)

    def read(self, exchange: Exchange) -> bytes:
        async def collect() -> bytes:
            await exchange.head()
            return b"".join([piece async for piece in exchange])

        return self.loop.run_until_complete(collect())


@pytest.fixture(scope="module")
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop()
    yield loop
    loop.close()


@pytest.fixture
def bench(loop: asyncio.AbstractEventLoop) -> Bench:
    return Bench(loop)


OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
parts = st.lists(st.binary(min_size=1, max_size=40), max_size=8)


def chunked(body: list[bytes]) -> bytes:
    chunks = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in body)
    return b"Transfer-Encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n"


def sized(body: list[bytes]) -> bytes:
    whole = b"".join(body)
    return b"Content-Length: %d\r\n\r\n" % len(whole) + whole


@st.composite
def cut_answers(draw: st.DrawFn) -> tuple[list[bytes], bytes]:
    """An answer cut into reads at any places, and its body."""
    body = draw(parts)
    interim = draw(st.sampled_from([b"", b"HTTP/1.1 100 Continue\r\n\r\n"]))
    frame = draw(st.sampled_from([chunked, sized]))
    answer = interim + b"HTTP/1.1 200 OK\r\nX-A: b\r\n" + frame(body)
    cuts = sorted(draw(st.sets(st.integers(1, len(answer) - 1), max_size=12)))
    edges = [0, *cuts, len(answer)]
    reads = [answer[a:b] for a, b in pairwise(edges)]
    return reads, b"".join(body)


@given(cut_answers())
def test_however_an_answer_is_cut_it_reads_the_same(cut: tuple[list[bytes], bytes]) -> None:
    reads, body = cut
    loop = asyncio.new_event_loop()
    try:
        bench = Bench(loop)
        for round_ in (1, 2):  # the second time over the same connection
            exchange = bench.start()
            bench.hear(*reads)
            assert bench.read(exchange) == body
            assert (exchange.status, exchange.headers[0]) == (200, (b"X-A", b"b"))
            assert (bench.freed_count, bench.socket.aborted) == (round_, False)
    finally:
        loop.close()


@given(st.binary(min_size=1, max_size=200), st.integers(0, 60))
def test_garbage_never_escapes_as_anything_but_a_transport_error(junk: bytes, keep: int) -> None:
    loop = asyncio.new_event_loop()
    try:
        bench = Bench(loop)
        exchange = bench.start()
        bench.hear((b"HTTP/1.1 200 OK\r\n" + chunked([b"abc"]))[:keep])
        bench.hear(junk)
        bench.connection.eof_received()
        with contextlib.suppress(httpx.TransportError):
            bench.read(exchange)
        assert bench.freed_count == 0 or keep + len(junk) >= len(OK)
    finally:
        loop.close()


def test_a_connection_is_freed_before_its_reader_has_taken_everything(bench: Bench) -> None:
    first = bench.start()
    bench.hear(OK)
    assert bench.freed_count == 1
    second = bench.start()
    bench.hear(OK.replace(b"ok", b"no"))
    assert bench.read(first) == b"ok"
    assert bench.read(second) == b"no"


def test_an_answer_before_the_request_is_wholly_sent_does_not_free_the_connection(
    bench: Bench,
) -> None:
    exchange = bench.start()
    bench.socket.unsent = 1000
    bench.hear(b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n")
    assert bench.read(exchange) == b""
    assert (bench.freed_count, bench.socket.aborted) == (0, True)


@pytest.mark.parametrize(
    ("head", "why"),
    [
        (b"101 Switching\r\nConnection: upgrade\r\nUpgrade: h2c\r\n", "switched"),
        (b"000 Odd\r\nContent-Length: 0\r\n", "no such status"),
    ],
)
def test_a_switch_of_protocols_and_a_status_that_is_none_are_refused(
    bench: Bench, head: bytes, why: str
) -> None:
    exchange = bench.start()
    bench.hear(b"HTTP/1.1 " + head + b"\r\n")
    with pytest.raises(httpx.RemoteProtocolError, match=why):
        bench.read(exchange)
    assert bench.socket.aborted


@pytest.mark.parametrize("interim", [b"HTTP/1.1 102 P\r\nX: aaaaaaaaaaaaaaaaaaaaaaaaaaaa\r\n\r\n"])
def test_interim_heads_count_toward_the_limit(bench: Bench, interim: bytes) -> None:
    exchange = bench.start()
    for _ in range(HEAD_LIMIT // len(interim) + 1):
        if not bench.socket.aborted:
            bench.hear(interim)
    with pytest.raises(httpx.RemoteProtocolError, match="too large"):
        bench.read(exchange)


def test_the_limit_holds_for_one_head_after_another_not_for_their_sum(bench: Bench) -> None:
    answer = OK.replace(b"\r\n\r\n", b"\r\nX: " + b"a" * (HEAD_LIMIT // 2) + b"\r\n\r\n")
    for _ in range(4):
        exchange = bench.start()
        bench.hear(answer)
        assert bench.read(exchange) == b"ok"


def test_reading_stops_while_the_reader_is_behind_and_goes_on_when_it_has_caught_up(
    bench: Bench,
) -> None:
    exchange = bench.start()
    bench.hear(b"HTTP/1.1 200 OK\r\nContent-Length: 300000\r\n\r\n")
    bench.hear(b"x" * HIGH_WATER)
    assert not bench.socket.paused
    bench.hear(b"x", b"x")
    assert bench.socket.paused
    piece = bench.loop.run_until_complete(exchange.__anext__())
    assert len(piece) == HIGH_WATER + 2
    assert not bench.socket.paused


def test_a_connection_that_is_freed_while_paused_reads_again(bench: Bench) -> None:
    bench.start()
    bench.hear(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
    bench.hear(b"x" * 99_999)
    assert bench.socket.paused
    bench.hear(b"x")  # what the kernel had handed over already
    assert (bench.freed_count, bench.socket.paused) == (1, False)


def test_a_lone_piece_is_not_copied_and_several_come_as_one(bench: Bench) -> None:
    exchange = bench.start()
    bench.hear(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    bench.hear(b"2\r\nab\r\n3\r\ncde\r\n", b"1\r\nf\r\n")
    assert bench.loop.run_until_complete(exchange.__anext__()) == b"abcdef"


def test_the_loss_of_the_socket_is_told_once(bench: Bench) -> None:
    exchange = bench.start()
    bench.connection.eof_received()
    bench.connection.connection_lost(None)
    assert bench.lost_count == 1
    with pytest.raises(httpx.RemoteProtocolError):
        bench.read(exchange)


def test_a_reset_ends_even_a_body_without_a_length_as_a_failure(bench: Bench) -> None:
    exchange = bench.start()
    bench.hear(b"HTTP/1.1 200 OK\r\n\r\nhalf")
    bench.connection.connection_lost(ConnectionResetError("reset"))
    with pytest.raises(httpx.ReadError):
        bench.read(exchange)


def test_a_request_is_sent_as_it_was_given(bench: Bench) -> None:
    bench.connection.start("POST", [b"head", b"body"], {})
    assert bench.socket.written == b"headbody"


def test_what_broke_off_and_was_closed_does_not_wait_for_the_collector(bench: Bench) -> None:
    exchange = bench.start()
    bench.hear(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf")
    bench.connection.connection_lost(None)
    held = weakref.ref(exchange), weakref.ref(bench.connection)

    async def read_and_close(exchange: Exchange) -> None:
        with contextlib.suppress(httpx.RemoteProtocolError):
            async for _ in exchange:
                pass
        await exchange.aclose()

    gc.disable()
    try:
        bench.loop.run_until_complete(read_and_close(exchange))
        del exchange, bench.connection
        assert [each() for each in held] == [None, None]
    finally:
        gc.enable()
