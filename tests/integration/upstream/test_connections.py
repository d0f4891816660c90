"""Which connection a request goes over: kept, dropped, died meanwhile, all taken."""

from __future__ import annotations

import asyncio
import socket
import ssl
from pathlib import Path

import httpx
import pytest

from gateway.upstream.transport import EngineTransport
from tests.integration.upstream.ask import PATIENCE_S, fetch, pieces, send
from tests.integration.upstream.conftest import Build, Start
from tests.integration.upstream.server import CHUNKED, OK, Wire, answering, chunk, closing
from tests.over_httpx import AsHttpx


def has_ipv6() -> bool:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


async def test_requests_one_after_another_share_a_connection(
    transport: httpx.AsyncBaseTransport, engine: Start
) -> None:
    served = await engine(answering(OK, CHUNKED + b"2\r\nok\r\n0\r\n\r\n"))
    for _ in range(5):
        assert await fetch(transport, served.url) == (200, b"ok")
    assert len(served.wires) == 1


async def test_requests_side_by_side_never_share_one(
    transport: httpx.AsyncBaseTransport, engine: Start
) -> None:
    async def echo(wire: Wire) -> None:
        while True:
            body = (await wire.request()).split(b"\r\n\r\n", 1)[1]
            await asyncio.sleep(0)
            await wire.say(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)

    served = await engine(echo)
    bodies = [b"request %d" % number * 50 for number in range(120)]
    answers = await asyncio.gather(*(fetch(transport, served.url, body) for body in bodies))
    assert answers == [(200, body) for body in bodies]
    assert 1 < len(served.wires) <= 100


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok"),
        pytest.param(b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok"),
    ],
)
async def test_a_connection_that_the_engine_will_not_keep_is_not_kept(
    transport: httpx.AsyncBaseTransport, engine: Start, answer: bytes
) -> None:
    served = await engine(answering(answer))
    for _ in range(2):
        assert await fetch(transport, served.url) == (200, b"ok")
    assert len(served.wires) == 2


async def test_a_connection_that_died_while_idle_is_not_used(
    transport: httpx.AsyncBaseTransport, engine: Start
) -> None:
    served = await engine(closing(OK))
    for number in range(1, 4):
        assert await fetch(transport, served.url) == (200, b"ok")
        await served.wires[-1].hang_up()
        assert len(served.wires) == number


async def test_a_connection_that_was_reset_while_idle_is_not_used(
    our_transport: httpx.AsyncBaseTransport, engine: Start
) -> None:
    served = await engine(answering(OK))
    for number in range(1, 4):
        assert await fetch(our_transport, served.url) == (200, b"ok")
        served.wires[-1].reset()
        assert len(served.wires) == number


async def test_idle_connections_expire(make_transport: Build, engine: Start) -> None:
    transport = make_transport(idle_s=0.01)
    served = await engine(answering(OK))
    await fetch(transport, served.url)
    await asyncio.sleep(0.05)  # the reference only looks when it is asked again
    await fetch(transport, served.url)
    assert len(served.wires) == 2


async def test_idle_connections_are_closed_without_being_asked(
    make_ours: Build, engine: Start
) -> None:
    transport = make_ours(idle_s=0.02)
    left = asyncio.Event()

    async def script(wire: Wire) -> None:
        await wire.request()
        await wire.say(OK)
        await wire.is_left()
        left.set()

    served = await engine(script)
    await fetch(transport, served.url)
    async with asyncio.timeout(PATIENCE_S):
        await left.wait()


async def test_what_an_idle_engine_says_unasked_closes_its_connection(
    our_transport: httpx.AsyncBaseTransport, engine: Start
) -> None:
    async def script(wire: Wire) -> None:
        await wire.request()
        await wire.say(OK)
        await bell.wait()
        await wire.say(b"HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\n\r\n")
        await wire.is_left()
        left.set()

    bell, left = asyncio.Event(), asyncio.Event()
    served = await engine(script)
    assert await fetch(our_transport, served.url) == (200, b"ok")
    bell.set()
    async with asyncio.timeout(PATIENCE_S):
        await left.wait()
    assert await fetch(our_transport, served.url) == (200, b"ok")


async def test_bytes_after_the_answer_spoil_the_connection_but_not_the_answer(
    our_transport: httpx.AsyncBaseTransport, engine: Start
) -> None:
    served = await engine(answering(OK + b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil"))
    for _ in range(2):
        assert await fetch(our_transport, served.url) == (200, b"ok")
    assert len(served.wires) == 2


# --- the race: closed by the engine just as we send ----------------------------------------------


async def answer_once_then_drop(wire: Wire) -> None:
    await wire.request()
    await wire.say(OK)
    await wire.request()


async def test_a_request_that_met_a_closing_connection_is_sent_once_more(
    our_transport: httpx.AsyncBaseTransport, engine: Start
) -> None:
    served = await engine(answer_once_then_drop)
    for number in range(1, 4):
        assert await fetch(our_transport, served.url) == (200, b"ok")
        assert len(served.wires) == number


async def test_the_second_try_goes_past_every_idle_connection(
    our_transport: httpx.AsyncBaseTransport, engine: Start
) -> None:
    all_here = asyncio.Barrier(4)

    async def script(wire: Wire) -> None:
        await wire.request()
        if len(served.wires) <= 4:
            await all_here.wait()
        await wire.say(OK)
        await wire.request()

    served = await engine(script)
    await asyncio.gather(*(fetch(our_transport, served.url) for _ in range(4)))
    assert await fetch(our_transport, served.url) == (200, b"ok")
    assert len(served.wires) == 5


async def test_a_first_request_is_never_sent_twice(
    transport: httpx.AsyncBaseTransport, engine: Start
) -> None:
    async def script(wire: Wire) -> None:
        await wire.request()

    served = await engine(script)
    with pytest.raises((httpx.RemoteProtocolError, httpx.ReadError)):
        await fetch(transport, served.url)
    assert len(served.wires) == 1


async def test_a_request_is_not_sent_again_once_anything_was_answered(
    transport: httpx.AsyncBaseTransport, engine: Start
) -> None:
    async def script(wire: Wire) -> None:
        await wire.request()
        await wire.say(OK)
        await wire.request()
        await wire.say(b"HTTP/1.1 100 Continue\r\n\r\n")

    served = await engine(script)
    assert await fetch(transport, served.url) == (200, b"ok")
    with pytest.raises((httpx.RemoteProtocolError, httpx.ReadError)):
        await fetch(transport, served.url)
    assert len(served.wires) == 1


async def test_a_request_is_sent_twice_at_most(
    our_transport: httpx.AsyncBaseTransport, engine: Start
) -> None:
    async def script(wire: Wire) -> None:
        await wire.request()
        if len(served.wires) == 1:
            await wire.say(OK)
            await wire.request()

    served = await engine(script)
    assert await fetch(our_transport, served.url) == (200, b"ok")
    with pytest.raises((httpx.RemoteProtocolError, httpx.ReadError)):
        await fetch(our_transport, served.url)
    assert len(served.wires) == 2


# --- limits and the end --------------------------------------------------------------------------


async def test_no_more_connections_are_opened_than_allowed(
    make_transport: Build, engine: Start
) -> None:
    transport = make_transport(max_connections=3)
    served = await engine(answering(OK))
    answers = await asyncio.gather(*(fetch(transport, served.url) for _ in range(30)))
    assert answers == [(200, b"ok")] * 30
    assert len(served.wires) <= 3


async def test_a_wait_for_a_free_connection_is_bounded(
    make_transport: Build, engine: Start
) -> None:
    transport = make_transport(max_connections=1)
    served = await engine(answering(CHUNKED + chunk(b"more to come")))
    first = await send(transport, served.url)
    with pytest.raises(httpx.PoolTimeout):
        await send(transport, served.url, pool=0.02)
    await first.aclose()
    second = await send(transport, served.url)
    await second.aclose()


async def test_an_engine_that_is_not_there_is_a_connect_error(
    make_transport: Build, engine: Start
) -> None:
    transport = make_transport(max_connections=1)
    served = await engine(answering(OK))
    await served.stop_listening()
    for _ in range(3):  # and holds no place in the pool
        with pytest.raises(httpx.ConnectError):
            await fetch(transport, served.url)


async def test_a_name_that_cannot_be_resolved_is_a_connect_error(
    transport: httpx.AsyncBaseTransport,
) -> None:
    with pytest.raises(httpx.ConnectError):
        await fetch(transport, "http://no-such-engine.invalid/v1")


async def test_a_scheme_that_is_not_http_is_refused(transport: httpx.AsyncBaseTransport) -> None:
    with pytest.raises(httpx.UnsupportedProtocol):
        await fetch(transport, "ftp://127.0.0.1/v1")


@pytest.mark.skipif(not has_ipv6(), reason="this machine has no ::1")
async def test_ipv6(transport: httpx.AsyncBaseTransport, engine: Start) -> None:
    served = await engine(answering(OK), host="::1")
    assert await fetch(transport, served.url) == (200, b"ok")
    assert len(served.wires) == 1


async def test_closing_the_transport_ends_what_is_under_way(engine: Start) -> None:
    transport = AsHttpx(EngineTransport())
    served = await engine(answering(CHUNKED + chunk(b"more to come")))
    response = await send(transport, served.url)
    body = aiter(pieces(response))
    await anext(body)
    await transport.aclose()
    with pytest.raises(httpx.ReadError):
        await anext(body)
    await response.aclose()
    with pytest.raises(httpx.ConnectError):
        await send(transport, served.url)
    with pytest.raises(httpx.ConnectError):
        await send(transport, "http://127.0.0.1:1/never-asked-before")


# --- TLS -----------------------------------------------------------------------------------------


async def test_tls_checks_the_engines_certificate(
    make_transport: Build, engine: Start, certificate: tuple[Path, Path]
) -> None:
    key, cert = certificate
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(cert, key)
    served = await engine(answering(OK), tls=server)
    trusting = make_transport(tls=ssl.create_default_context(cafile=str(cert)))
    for _ in range(2):
        assert await fetch(trusting, served.url, b"x" * 300_000) == (200, b"ok")
    assert len(served.wires) == 1
    with pytest.raises(httpx.ConnectError):
        await fetch(make_transport(), served.url)


async def test_a_stream_over_tls_is_aborted_like_any_other(
    make_transport: Build, engine: Start, certificate: tuple[Path, Path]
) -> None:
    key, cert = certificate
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(cert, key)
    left = asyncio.Event()

    async def script(wire: Wire) -> None:
        await wire.request()
        await wire.say(CHUNKED + chunk(b"one"))
        await wire.is_left()
        left.set()

    served = await engine(script, tls=server)
    transport = make_transport(tls=ssl.create_default_context(cafile=str(cert)))
    response = await send(transport, served.url)
    assert await anext(aiter(pieces(response))) == b"one"
    await response.aclose()
    async with asyncio.timeout(PATIENCE_S):
        await left.wait()
