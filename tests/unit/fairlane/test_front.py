"""What the console's door refuses before Django: bodies without end, NULs in addresses, and hosts
that are not ours."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import Any

import pytest

from fairlane import front
from fairlane.database_faults import Sparing
from gateway import incoming

LIMIT = 1000


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(front, "BODY_BYTES", LIMIT)


async def ask(
    *parts: bytes,
    path: str = "/login/",
    query: bytes = b"",
    length: bytes | None = None,
    host: bytes | None = b"localhost:8000",
) -> tuple[int, int]:
    """The status of the answer, and how many bytes Django got to see."""
    sent: list[Any] = []
    messages = iter(as_messages(parts))
    seen = 0

    async def receive() -> Any:
        return next(messages)

    async def send(message: Any) -> None:
        sent.append(message)

    async def django(scope: Any, receive: Any, send: Any) -> None:
        nonlocal seen
        more = True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            seen += len(message["body"])
            more = message["more_body"]
        await send({"type": "http.response.start", "status": 200, "headers": []})

    given = {b"content-length": length, b"host": host}
    headers = [(name, value) for name, value in given.items() if value is not None]
    scope = {"type": "http", "path": path, "query_string": query, "headers": headers}
    scope["server"] = ("127.0.0.1", 8000)
    await front.ask(django, scope, receive, send)
    return sent[0]["status"], seen


def as_messages(parts: tuple[bytes, ...]) -> Iterable[dict[str, Any]]:
    for place, part in enumerate(parts, 1):
        yield {"type": "http.request", "body": part, "more_body": place < len(parts)}


async def test_a_body_passes_up_to_the_limit() -> None:
    assert await ask(b"x" * LIMIT, length=b"1000") == (200, LIMIT)
    assert await ask(b"x" * 400, b"x" * 600) == (200, LIMIT)


async def test_a_body_that_is_announced_too_large_is_not_read_at_all() -> None:
    assert await ask(b"x" * LIMIT, b"x", length=b"1001") == (413, 0)


@pytest.mark.parametrize("length", [None, b"-1", b"ten"])
async def test_a_body_of_unknown_length_is_counted_as_it_comes(length: bytes | None) -> None:
    assert await ask(*[b"x" * 300] * 100, length=length) == (413, 900)


@pytest.mark.parametrize("host", [b"127.0.0.1", b"LOCALHOST.:80", b"[::1]:8000", None])
async def test_a_host_that_is_allowed_is_served(host: bytes | None) -> None:
    assert await ask(b"x", host=host) == (200, 1)


@pytest.mark.parametrize("host", [b"93.184.216.34", b"evil.example:8000", b"a b", b"\xff", b"[::2"])
async def test_any_other_is_told_so_and_is_no_error(
    host: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    assert await ask(b"x", host=host) == (400, 0)
    assert {record.levelname for record in caplog.records} <= {"INFO"}
    assert all(record.exc_info is None for record in caplog.records)


def test_the_log_has_one_line_of_many() -> None:
    assert any(isinstance(f, Sparing) for f in logging.getLogger("fairlane.front").filters)


async def test_a_body_that_stops_coming_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(incoming, "PATIENCE_S", 0.01)
    sent: list[Any] = []
    heard: list[str] = []
    parts = iter([{"type": "http.request", "body": b"half", "more_body": True}])

    async def receive() -> Any:
        return next(parts, None) or await asyncio.Event().wait()

    async def send(message: Any) -> None:
        sent.append(message)

    async def django(scope: Any, receive: Any, send: Any) -> None:
        heard.extend([(await receive())["type"] for _ in range(2)])

    scope = {"type": "http", "path": "/login/", "query_string": b"", "headers": []}
    await front.ask(django, scope, receive, send)
    assert heard == ["http.request", "http.disconnect"]
    assert sent[0]["status"] == 408


async def test_a_caller_may_take_its_time_once_its_body_is_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A live page's stream waits for hours for nothing but its caller's hang-up."""
    monkeypatch.setattr(incoming, "PATIENCE_S", -1.0)
    messages: asyncio.Queue[Any] = asyncio.Queue()

    async def receive() -> Any:
        return await messages.get()

    async def django(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        asyncio.get_running_loop().call_later(0.01, messages.put_nowait, {"type": "left"})
        assert await receive() == {"type": "left"}

    messages.put_nowait({"type": "http.request", "body": b"", "more_body": False})
    scope = {"type": "http", "path": "/", "query_string": b"", "headers": []}
    await front.ask(django, scope, receive, lambda message: None)


@pytest.mark.parametrize(
    ("path", "query"), [("/keys/\x00/", b""), ("/keys/", b"q=%00"), ("/keys/", b"q=a%00b&x=1")]
)
async def test_a_nul_in_an_address_is_refused(path: str, query: bytes) -> None:
    assert await ask(b"", path=path, query=query) == (400, 0)
    harmless = query.replace(b"%00", b"0%2500")
    assert await ask(b"", path=path.replace("\x00", "0"), query=harmless) == (200, 0)
