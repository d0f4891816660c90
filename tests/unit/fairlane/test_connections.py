"""How many connections are held, which go first, and what a refused call may still send."""

from __future__ import annotations

import asyncio
import resource
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import uvicorn

from fairlane import connections, http
from fairlane.connections import CountedHttp, bound

GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
POST = b"POST /refused HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n"
PATIENCE_S = 60.0

Ends = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Server:
    """`/hold` is answered when the test lets it, `/part` begun before that; `/refused` at once, its
    body unread."""

    server: uvicorn.Server

    def __init__(self) -> None:
        self.lets_go = asyncio.Event()
        self.open: list[asyncio.StreamWriter] = []
        self.holds = 0
        self.port = 0

    async def app(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["path"] == "/hold":
            self.holds += 1
            await self.lets_go.wait()
        elif scope["path"] != "/refused":
            while (await receive()).get("more_body"):
                pass
        await send({"type": "http.response.start", "status": 200, "headers": []})
        if scope["path"] == "/part":
            await send({"type": "http.response.body", "body": b"part", "more_body": True})
            await self.lets_go.wait()
        await send({"type": "http.response.body", "body": b"ok"})

    def stop(self, monkeypatch: pytest.MonkeyPatch, lets_rest: bool) -> None:
        """As `serve` begins to."""
        monkeypatch.setattr(CountedHttp, "stops", True)
        monkeypatch.setattr(CountedHttp, "lets_rest", lets_rest)
        for each in list(self.server.server_state.connections):
            each.shutdown()

    async def connect(self, first: bytes = b"") -> Ends:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        self.open.append(writer)
        writer.write(first)
        return reader, writer

    async def answered(self, first: bytes = GET) -> Ends:
        reader, writer = await self.connect(first)
        await reader.readuntil(b"0\r\n\r\n")
        return reader, writer


@asynccontextmanager
async def served(monkeypatch: pytest.MonkeyPatch, most: int = 3) -> AsyncIterator[Server]:
    monkeypatch.setattr(CountedHttp, "most", most)
    made = Server()
    config = uvicorn.Config(
        made.app,
        port=0,
        http=CountedHttp,
        lifespan="off",
        log_config=None,
        interface="asgi3",
        timeout_keep_alive=int(PATIENCE_S),
    )
    made.server = server = uvicorn.Server(config)
    serving = asyncio.create_task(server._serve())
    while not server.started:
        await asyncio.sleep(0.01)
    made.port = server.servers[0].sockets[0].getsockname()[1]
    try:
        async with asyncio.timeout(PATIENCE_S):
            yield made
    finally:
        made.lets_go.set()
        for writer in made.open:
            writer.close()
        server.should_exit = True
        await serving
    assert not CountedHttp._at_rest


async def is_closed(reader: asyncio.StreamReader) -> bool:
    try:
        return await reader.read() == b""
    except ConnectionError:
        return True


async def test_past_the_bound_the_longest_idle_one_makes_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with served(monkeypatch) as server:
        silent, _ = await server.connect()
        await server.answered()
        await server.answered()
        await server.answered()  # the fourth
        assert await is_closed(silent)


async def test_one_that_is_being_served_never_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    async with served(monkeypatch) as server:
        held, _ = await server.connect(b"GET /hold HTTP/1.1\r\nHost: x\r\n\r\n")
        for _ in range(10):
            await server.answered()
        server.lets_go.set()
        assert await held.readuntil(b"0\r\n\r\n")


async def test_where_all_are_being_served_a_new_one_is_told_to_come_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with served(monkeypatch) as server:
        hold = b"GET /hold HTTP/1.1\r\nHost: x\r\n\r\n"
        held = [await server.connect(hold) for _ in range(3)]
        while server.holds < 3:
            await asyncio.sleep(0.01)
        late, _ = await server.connect()
        answer = await late.read()
        assert answer.startswith(b"HTTP/1.1 503 ")
        assert b"retry-after: 1" in answer
        server.lets_go.set()
        for reader, _ in held:
            assert await reader.readuntil(b"0\r\n\r\n")
        await server.answered()


async def test_a_thousand_silent_connections_lock_nobody_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with served(monkeypatch, most=50) as server:
        for _ in range(20):
            for _ in range(50):
                await server.connect()
            await server.answered()
            assert len(CountedHttp._at_rest) <= 50


async def test_the_rest_of_a_refused_body_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connections, "LINGER_S", 0.2)
    async with served(monkeypatch) as server:
        reader, writer = await server.answered(POST)
        ended = asyncio.create_task(is_closed(reader))
        while not ended.done():  # a byte now and then keeps nothing open
            writer.write(b"a")
            await asyncio.sleep(0.01)
        assert ended.result()


async def test_a_refused_body_that_comes_whole_leaves_its_connection_usable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with served(monkeypatch) as server:
        reader, writer = await server.answered(POST)
        writer.write(b"a" * 1000 + GET)
        assert await reader.readuntil(b"0\r\n\r\n")


async def test_after_a_refused_body_an_idle_connection_ends_as_any_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http, "HEAD_SECONDS", 0.2)
    async with served(monkeypatch) as server:
        reader, writer = await server.answered(POST)
        writer.write(b"a" * 1000)
        assert await is_closed(reader)


async def test_before_a_stop_a_kept_connection_serves_one_more_call_and_says_that_it_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with served(monkeypatch) as server:
        reader, writer = await server.answered()
        server.stop(monkeypatch, lets_rest=True)
        writer.write(GET)
        answer = await reader.read()
        assert answer.startswith(b"HTTP/1.1 200 ")
        assert b"connection: close" in answer


async def test_before_a_stop_an_answer_that_has_begun_leaves_its_connection_to_its_caller(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its head said nothing of an end."""
    async with served(monkeypatch) as server:
        reader, writer = await server.connect(b"GET /part HTTP/1.1\r\nHost: x\r\n\r\n")
        await reader.readuntil(b"part\r\n")
        server.stop(monkeypatch, lets_rest=True)
        server.lets_go.set()
        await reader.readuntil(b"0\r\n\r\n")
        writer.write(GET)
        assert b"connection: close" in await reader.read()


async def test_before_a_stop_what_is_not_answered_yet_says_that_it_is_the_last(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with served(monkeypatch) as server:
        reader, _ = await server.connect(b"GET /hold HTTP/1.1\r\nHost: x\r\n\r\n")
        while not server.holds:
            await asyncio.sleep(0.01)
        server.stop(monkeypatch, lets_rest=True)
        server.lets_go.set()
        assert b"connection: close" in await reader.read()


async def test_where_nobody_takes_over_a_stop_waits_for_no_kept_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with served(monkeypatch) as server:
        reader, _ = await server.answered()
        server.stop(monkeypatch, lets_rest=False)
        assert await is_closed(reader)


@pytest.mark.parametrize(
    ("soft", "hard", "wanted", "most"),
    [
        (1024, 20_000, 8192, 8192),
        (1024, 1024, 8192, 384),
        (1024, resource.RLIM_INFINITY, 9000, 9000),
        (64, 64, 8192, 1),
    ],
)
def test_the_bound_keeps_within_the_open_files_that_the_process_may_have(
    soft: int, hard: int, wanted: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    raised: list[Any] = []
    monkeypatch.setattr(resource, "getrlimit", lambda which: (soft, hard))
    monkeypatch.setattr(resource, "setrlimit", lambda which, limits: raised.append(limits))
    assert bound(wanted) == most
    assert raised == ([(hard, hard)] if soft != hard else [])
