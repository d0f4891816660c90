"""One exchange with a caller: its body, its hang-up, its answer."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gateway.errors import ApiError, Outcome
from gateway.exchange import LOST, Exchange, HungUp, Message


class Line:
    """A server's side: what the caller sends, and what it was sent."""

    def __init__(self, *messages: Message, length: bytes = b"") -> None:
        self.incoming: asyncio.Queue[Message] = asyncio.Queue()
        self.sent: list[Any] = []
        for message in messages:
            self.incoming.put_nowait(message)
        headers = [(b"content-length", length)] if length else []
        self.exchange = Exchange({"headers": headers}, self.incoming.get, self.send)

    async def send(self, message: Message) -> None:
        self.sent.append(message)

    def hang_up(self) -> None:
        self.incoming.put_nowait({"type": "http.disconnect"})


def part(body: bytes, more: bool = False) -> Message:
    return {"type": "http.request", "body": body, "more_body": more}


async def test_a_body_in_parts_is_put_together() -> None:
    line = Line(part(b"one ", True), part(b"", True), part(b"two", True), part(b""))
    assert await line.exchange.body(100) == b"one two"


async def test_a_request_without_a_body_has_an_empty_one() -> None:
    assert await Line({"type": "http.request"}).exchange.body(100) == b""


async def test_a_body_of_exactly_the_limit_passes_and_one_byte_more_does_not() -> None:
    assert len(await Line(part(b"x" * 10)).exchange.body(10)) == 10
    with pytest.raises(ApiError) as caught:
        await Line(part(b"x" * 11)).exchange.body(10)
    assert caught.value.outcome is Outcome.REQUEST_TOO_LARGE
    assert "10 bytes" in caught.value.message


async def test_what_is_too_large_in_parts_is_refused_before_it_is_all_there() -> None:
    line = Line(part(b"x" * 6, True), part(b"x" * 6, True))  # and the rest never comes
    with pytest.raises(ApiError):
        await line.exchange.body(10)


async def test_what_says_that_it_is_too_large_is_refused_at_its_first_part() -> None:
    with pytest.raises(ApiError, match="larger than 10 bytes"):
        await Line(part(b"x", True), length=b"11").exchange.body(10)
    for length in (b"10", b"", b"-1", b"eleven"):
        line = Line(part(b"x", True), part(b"x"), length=length)
        assert await line.exchange.body(10) == b"xx"


async def test_a_caller_that_leaves_while_it_sends_has_hung_up() -> None:
    line = Line(part(b"half", True))
    line.hang_up()
    with pytest.raises(HungUp):
        await line.exchange.body(100)


async def test_a_hang_up_cancels_the_task_that_serves_and_says_so() -> None:
    line = Line()

    async def serve() -> None:
        line.exchange.watch()
        await asyncio.Event().wait()

    task = asyncio.create_task(serve())
    await asyncio.sleep(0)
    line.hang_up()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert line.exchange.gone


def told_by_its_connection() -> tuple[Exchange, asyncio.Future[None]]:
    lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    line = Line()
    scope = {"headers": [], "extensions": {LOST: {"future": lost}}}
    return Exchange(scope, line.incoming.get, line.send), lost


@pytest.mark.parametrize("before", [True, False])
async def test_a_lost_connection_cancels_the_task_whether_lost_before_or_after(
    before: bool,
) -> None:
    exchange, lost = told_by_its_connection()
    if before:
        lost.set_result(None)

    async def serve() -> None:
        exchange.watch()
        await asyncio.Event().wait()

    task = asyncio.create_task(serve())
    await asyncio.sleep(0)
    if not before:
        lost.set_result(None)
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (exchange.gone, exchange.left) == (True, "cancelled")


async def test_a_connection_lost_once_all_is_sent_is_no_hang_up() -> None:
    exchange, lost = told_by_its_connection()

    async def serve() -> str:
        exchange.watch()
        lost.set_result(None)  # its callbacks wait for the loop's next turn
        await exchange.respond(200, [], b"done")
        await asyncio.sleep(0)
        return "served"

    assert await asyncio.create_task(serve()) == "served"
    assert not exchange.gone


async def test_more_of_a_body_is_no_hang_up() -> None:
    line = Line(part(b"", True))

    async def serve() -> str:
        line.exchange.watch()
        while not line.incoming.empty():
            await asyncio.sleep(0)
        await asyncio.sleep(0)
        line.exchange.unwatch()
        return "served"

    assert await asyncio.create_task(serve()) == "served"
    assert not line.exchange.gone


async def test_the_end_of_a_complete_answer_is_no_hang_up() -> None:
    line = Line()

    async def serve() -> str:
        line.exchange.watch()
        await asyncio.sleep(0)
        await line.exchange.respond(200, [], b"done")
        line.hang_up()  # as servers say it when all is sent
        for _ in range(5):
            await asyncio.sleep(0)
        return "served"

    assert await asyncio.create_task(serve()) == "served"
    assert not line.exchange.gone


async def test_a_whole_answer_tells_its_length() -> None:
    line = Line()
    await line.exchange.respond(404, [(b"content-type", b"text/plain")], b"nothing")
    start, body = line.sent
    assert (start["status"], line.exchange.started) == (404, True)
    assert start["headers"] == [(b"content-type", b"text/plain"), (b"content-length", b"7")]
    assert (body["body"], body["more_body"]) == (b"nothing", False)


async def test_a_stream_is_open_until_it_is_finished() -> None:
    line = Line()
    await line.exchange.start(200, [])
    await line.exchange.write(b"a")
    await line.exchange.finish(b"b")
    assert [(m["body"], m["more_body"]) for m in line.sent[1:]] == [(b"a", True), (b"b", False)]
