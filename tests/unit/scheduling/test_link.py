"""Calls to Redis arrive, whatever became of the connection that they were sent on."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import msgspec
import pytest
from redis.asyncio import Redis
from structlog.testing import capture_logs

from scheduling.shared.library import Library
from scheduling.shared.link import Call, Link

pytestmark = pytest.mark.asyncio


class Pipeline:
    def __init__(self, fails: list[Exception]) -> None:
        self._fails = fails

    def execute_command(self, *words: Any) -> None:
        pass

    async def execute(self, raise_on_error: bool) -> list[bytes]:
        if self._fails:
            raise self._fails.pop()
        return [msgspec.msgpack.encode("answer")]


class Server:
    """Redis as the link sees it, whose connection fails so often."""

    def __init__(self, *fails: Exception) -> None:
        self._fails = list(fails)

    def pipeline(self, transaction: bool) -> Pipeline:
        return Pipeline(self._fails)


class Names:
    def function(self, name: str) -> str:
        return name


async def test_one_that_ended_under_a_write_is_out_of_reach_and_no_error_of_ours() -> None:
    """uvloop says so by a RuntimeError, which redis-py passes on as it is."""
    closed = RuntimeError("unable to perform operation on <TCPTransport closed=True>")
    link = Link(cast(Redis, Server(closed)), cast(Library, Names()), patience_s=1.0)
    answered: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    link.start()
    with capture_logs() as logged:
        link.send(Call("ask", (), lambda: b"", answered.set_result, None))
        assert await answered == "answer"
    await link.close()
    assert [line["event"] for line in logged if line["log_level"] == "error"] == []
    assert "unable to perform operation" in link.trouble
