"""A caller that costs little: raw sockets, one request at a time on each, nothing parsed twice.

What it measures is the other side; a client library's own cost would hide it.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import cast

LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)
LAST_CHUNK = b"0\r\n\r\n"


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    body: bytes  # with its chunk framing, where it has one
    first_s: float  # to the first byte of the body
    total_s: float


def message(path: str, body: bytes, key: str = "") -> bytes:
    head = f"POST {path} HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\n"
    head += f"Authorization: Bearer {key}\r\n" if key else ""
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


def lorem(model: str, number: int, words: int, tokens: int) -> bytes:
    """A streamed chat's body for exactly so many tokens; no two numbers share a prefix."""
    body = {
        "model": model,
        "messages": [{"role": "user", "content": f"{number} " + "lorem " * words}],
        "max_tokens": tokens,
        "ignore_eos": True,
        "stream": True,
    }
    return json.dumps(body, separators=(",", ":")).encode()


class Caller(asyncio.Protocol):
    """One kept-alive connection."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self._answer: asyncio.Future[Answer] | None = None

    async def ask(self, message: bytes) -> Answer:
        """Raises ConnectionError when the other side closes first."""
        if self.transport.is_closing():
            raise ConnectionError("the connection is closed")
        self._head = self._tail = b""
        self._length: int | None = None
        self._size = 0
        self._parts: list[bytes] = []
        self._first = 0.0
        self._answer = asyncio.get_running_loop().create_future()
        self._began = time.perf_counter()
        self.transport.write(message)
        return await self._answer

    def data_received(self, data: bytes) -> None:
        if not self._first:
            head, end, data = (self._head + data).partition(b"\r\n\r\n")
            self._head = head
            if not end or not data:
                self._head = head + end
                return
            length = LENGTH.search(head)
            self._length = int(length[1]) if length else None
            self._first = time.perf_counter()
        self._parts.append(data)
        self._size += len(data)
        if self._length is not None:
            whole = self._size >= self._length
        else:
            self._tail = (self._tail + data)[-len(LAST_CHUNK) :]
            whole = self._tail == LAST_CHUNK
        if whole:
            self._end()

    def _end(self) -> None:
        assert self._answer is not None
        status, body = int(self._head[9:12]), b"".join(self._parts)
        first_s, total_s = self._first - self._began, time.perf_counter() - self._began
        if not self._answer.done():
            self._answer.set_result(Answer(status, body, first_s, total_s))

    def connection_lost(self, error: Exception | None) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(error or ConnectionError("the other side closed"))


async def connect(port: int) -> Caller:
    made = await asyncio.get_running_loop().create_connection(Caller, "127.0.0.1", port)
    return made[1]


async def user(port: int, key: str, bodies: Iterator[bytes], over: asyncio.Event) -> None:
    """One chat after the other until it is over."""
    caller = await connect(port)
    while not over.is_set():
        answer = await caller.ask(message("/v1/chat/completions", next(bodies), key))
        assert answer.status == 200, answer
    caller.transport.close()


async def ask_all(
    callers: list[Caller], message: bytes, each: int, apart_s: float = 0.0
) -> list[Answer]:
    """Each caller asks `each` times, one after the other. They begin `apart_s` from each other."""

    async def one(number: int, caller: Caller) -> list[Answer]:
        if apart_s:
            await asyncio.sleep(number * apart_s)
        answers = [await caller.ask(message) for _ in range(each)]
        bad = next((answer for answer in answers if answer.status != 200), None)
        assert bad is None, bad
        return answers

    tasks = [one(number, caller) for number, caller in enumerate(callers)]
    return [answer for own in await asyncio.gather(*tasks) for answer in own]
