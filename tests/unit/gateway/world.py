"""A gateway in one event loop: real governor, real relay, real clocks; engines over httpx's
MockTransport, a journal that is a list, and callers that speak ASGI.

`log` is one list of what happened, in order: `opened`, `ended`; of what is sent `start`, `body`,
`done` (a stream's `[DONE]`) and `last`.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import httpx

from gateway.calls import Calls
from gateway.estimates import Estimates
from gateway.exchange import Exchange, Message
from gateway.governor import LocalGovernor
from gateway.policy import scheduler_config
from gateway.upstream.engines import Engines
from gateway.wire.routes import Kind
from metering.core.accounts import LocalAccounts
from metering.core.record import UsageRecord
from metering.journal import OpenEntry
from scheduling.runtime import LocalScheduler
from tenants.core.snapshot import PolicySnapshot
from tests.over_httpx import client_over
from tests.unit.gateway.cast import SECRET, snapshot
from tests.unit.wire.frames import DONE, finish, role, token, usage

Reply = httpx.Response | Exception
Engine = Callable[[httpx.Request], Awaitable[Reply]]
SSE = {"content-type": "text/event-stream; charset=utf-8"}
PATIENCE_S = 60.0  # a test that waits longer has failed; nothing measures time
HELLO: list[dict[str, Any]] = [{"role": "user", "content": "Hello"}]


ASKED: dict[Kind, dict[str, Any]] = {
    "chat": {"messages": HELLO},
    "completions": {"prompt": "Once"},
    "responses": {"input": "Once", "instructions": "Be brief"},
    "messages": {"messages": HELLO, "max_tokens": 9, "system": "Be brief"},
    "embeddings": {"input": ["Once", "upon"]},
    "rerank": {"query": "Once", "documents": ["upon", {"text": "a time"}]},
    "score": {"text_1": "Once", "text_2": ["upon"]},
    "tokenize": {"prompt": "Once"},
}


class Stream(httpx.AsyncByteStream):
    """Gives its pieces; then ends, breaks, or waits for ever."""

    def __init__(self, *pieces: bytes, then: str = "end") -> None:
        self.pieces = pieces
        self.then = then
        self.is_closed = False

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for piece in self.pieces:
            await asyncio.sleep(0)
            yield piece
        if self.then == "wait":
            await asyncio.Event().wait()
        if self.then == "break":
            raise httpx.ReadError("the engine died")

    async def aclose(self) -> None:
        self.is_closed = True


def whole(prompt: int = 12, completion: int = 3, **more: Any) -> httpx.Response:
    choice = {"index": 0, "message": {"content": "Hi"}, "finish_reason": "stop"}
    counts = {"prompt_tokens": prompt, "completion_tokens": completion}
    return httpx.Response(200, json={"choices": [choice], "usage": counts, **more})


def streamed(*pieces: bytes, then: str = "end") -> httpx.Response:
    return httpx.Response(200, headers=SSE, stream=Stream(*pieces, then=then))


def full_stream() -> list[bytes]:
    return [role(), token("Hi"), token(" there"), finish(), usage(12, 2), DONE]


class Journal:
    def __init__(self, log: list[str]) -> None:
        self.entries: list[OpenEntry] = []
        self.records: list[UsageRecord] = []
        self._log = log

    def opened(self, entry: OpenEntry) -> None:
        self._log.append("opened")
        self.entries.append(entry)

    def ended(self, record: UsageRecord) -> None:
        self._log.append("ended")
        self.records.append(record)


class Caller:
    """One call; `task` serves it. While `reads` is cleared the caller takes nothing in."""

    def __init__(
        self,
        calls: Calls,
        body: bytes,
        headers: list[tuple[bytes, bytes]],
        hear: Callable[[str], None],
        kind: Kind = "chat",
    ) -> None:
        self.sent: list[Any] = []
        self.reads = asyncio.Event()
        self.reads.set()
        self._hear = hear
        self._incoming: asyncio.Queue[Message] = asyncio.Queue()
        self._incoming.put_nowait({"type": "http.request", "body": body, "more_body": False})
        exchange = Exchange({"headers": headers}, self._incoming.get, self._send)
        self.task = asyncio.create_task(calls.serve(kind, exchange))

    async def _send(self, message: Message) -> None:
        await self.reads.wait()
        if message["type"] == "http.response.start":
            self._hear("start")
        elif DONE in message["body"]:
            self._hear("done")
        else:
            self._hear("body" if message["more_body"] else "last")
        self.sent.append(message)

    def hang_up(self) -> None:
        self._incoming.put_nowait({"type": "http.disconnect"})

    async def end(self) -> Caller:
        async with asyncio.timeout(PATIENCE_S):
            await self.task
        return self

    @property
    def status(self) -> int:
        return int(self.sent[0]["status"])

    @property
    def headers(self) -> dict[str, str]:
        return {name.decode(): value.decode() for name, value in self.sent[0]["headers"]}

    @property
    def body(self) -> bytes:
        return b"".join(message["body"] for message in self.sent[1:])

    @property
    def error(self) -> dict[str, Any]:
        """Of an error answer, or of the event that a broken stream ends with."""
        text = self.body.removesuffix(b"\n\n").rpartition(b"data: ")[2]
        found: dict[str, Any] = json.loads(text)["error"]
        return found


class World:
    def __init__(self, policy: PolicySnapshot | None = None, max_body_bytes: int = 10_000) -> None:
        policy = policy or snapshot()
        self.log: list[str] = []
        self.asked: list[httpx.Request] = []
        self.replies: list[Reply | Engine] = []
        self.down: set[str] = set()
        self.unreachable: list[str] = []
        self.heard: list[tuple[str, str]] = []  # what answers said of their endpoints
        self.journal = Journal(self.log)
        self.accounts = LocalAccounts()
        self.scheduler = LocalScheduler(scheduler_config(policy))
        self.estimates = Estimates()
        self.calls = Calls(
            policy,
            LocalGovernor(self.accounts, self.scheduler),
            Engines(
                client_over(httpx.MockTransport(self._engine)),
                b"salt",
                lambda pool, url: url not in self.down,
                lambda pool, url: self.unreachable.append(url),
                lambda pool, url, what: self.heard.append((url, what)),
            ),
            self.estimates,
            self.journal,  # type: ignore[arg-type]
            max_body_bytes,
        )

    async def _engine(self, request: httpx.Request) -> httpx.Response:
        self.asked.append(request)
        reply = self.replies.pop(0) if self.replies else whole()
        found = reply if isinstance(reply, httpx.Response | Exception) else await reply(request)
        if isinstance(found, Exception):
            raise found
        return found

    def call(
        self,
        *replies: Reply | Engine,
        key: str = "alice",
        body: bytes | None = None,
        headers: dict[str, str] | None = None,
        kind: Kind = "chat",
        **fields: Any,
    ) -> Caller:
        self.replies += replies
        if body is None:
            body = json.dumps({"model": "chat", **ASKED[kind], **fields}).encode()
        secret = SECRET.get(key, key.encode())
        raw = [(b"authorization", b"Bearer " + secret)]
        raw += [(name.encode(), value.encode()) for name, value in (headers or {}).items()]
        return Caller(self.calls, body, raw, self.log.append, kind)

    async def ask(self, *replies: Reply | Engine, **options: Any) -> Caller:
        return await self.call(*replies, **options).end()

    async def until(self, condition: Callable[[], Any]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not condition():
                await asyncio.sleep(0.001)

    @property
    def record(self) -> UsageRecord:
        [record] = self.journal.records
        return record

    @property
    def is_empty(self) -> bool:
        """No place, no reservation and no waiter is left over."""
        return (
            self.scheduler.idle and not self.accounts.open_reservations and not self.calls.waiting
        )


async def never(_: httpx.Request) -> Reply:
    """An engine that takes the request and stays silent."""
    await asyncio.Event().wait()
    raise AssertionError
