"""Whatever an engine answers: one end, one record with numbers that can be true, nothing held, and
no failure of our own."""

from __future__ import annotations

import asyncio
import json
import math
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from gateway.wire.routes import ROUTES, Kind
from gateway.wire.usage import MAX_TOKENS
from tests.fuzz import examples
from tests.unit.gateway.world import SSE, Stream, World

KINDS: list[Kind] = list(ROUTES)
STREAMING: list[Kind] = [kind for kind, route in ROUTES.items() if route.meter is not None]

# The words that are looked for in answers, and numbers as no engine should tell them.
NAMES = st.sampled_from(
    [
        *("choices", "index", "delta", "text", "content", "finish_reason", "message", "role"),
        *("usage", "prompt_tokens", "completion_tokens", "total_tokens", "prompt_tokens_details"),
        *("input_tokens", "output_tokens", "cached_tokens", "cache_read_input_tokens", "count"),
        *("type", "response", "status", "output", "incomplete_details", "error", "code", "param"),
        *("data", "tokens", "object", "timings", "stop_reason", "input_tokens_details"),
    ]
)
NUMBERS = st.one_of(
    st.sampled_from([0, -1, 1, 2**31, 2**63, -(2**64), 10**30, 1.5, -0.0, math.nan, math.inf]),
    st.integers(),
)
WORDS = st.sampled_from(
    [
        *("", "stop", "length", "error", "completed", "failed", "incomplete", "[DONE]", "429"),
        *("message_start", "message_delta", "message_stop", "content_block_delta", "assistant"),
        *("response.completed", "response.failed", "response.output_text.delta", "9" * 5000),
        *("\ud800", "\0", "\u2028", "x" * 3000),
    ]
)
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.one_of(st.none(), st.booleans(), NUMBERS, WORDS),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(NAMES, inner, max_size=4)),
    max_leaves=12,
)
OBJECTS = st.dictionaries(NAMES, VALUES, max_size=5)
JSON = st.one_of(VALUES, OBJECTS).map(lambda value: json.dumps(value).encode())
DEEP = st.sampled_from([b"[" * 100_000, b'{"usage":' * 5_000, b'{"choices":[' * 3_000])
BODIES = st.one_of(JSON, JSON.map(lambda text: text[: len(text) // 2]), st.binary(), DEEP)
EVENTS = st.one_of(
    JSON.map(lambda text: b"data: " + text + b"\n\n"),
    JSON.map(lambda text: b"event: x\r\ndata:" + text + b"\r\n\r\n"),
    st.sampled_from([b"data: [DONE]\n\n", b": ping\n\n", b"\n\n", b"data:\n\n", b"data: {\n\n"]),
    st.binary(max_size=40),
)
PIECES = st.lists(EVENTS, max_size=6)
ENDS = st.sampled_from(["end", "break"])
STATUSES = st.sampled_from([200, 200, 200, 201, 204, 302, 400, 404, 422, 429, 500, 503])


async def judged(kind: Kind, reply: Any, stream: bool) -> World:
    """One call to engines that both answer so."""
    world = World()
    with capture_logs() as lines:
        caller = await world.ask(reply(), reply(), kind=kind, stream=stream)
    assert [line for line in lines if line["event"] == "request failed"] == []
    record = world.record
    assert 200 <= caller.status < 600
    assert world.is_empty
    for tokens in (record.prompt_tokens, record.cached_tokens, record.completion_tokens):
        assert type(tokens) is int
        assert 0 <= tokens <= 128 * MAX_TOKENS
    assert record.cached_tokens <= record.prompt_tokens
    assert 0 <= record.cost < math.inf
    assert record.status == 200 or caller.status != 200 or stream
    return world


@examples(60)
@given(kind=st.sampled_from(KINDS), status=STATUSES, body=BODIES, asks_to_stream=st.booleans())
def test_no_whole_answer_is_more_than_an_answer_or_an_error(
    kind: Kind, status: int, body: bytes, asks_to_stream: bool
) -> None:
    def reply() -> httpx.Response:
        headers = {"content-type": "application/json"}
        return httpx.Response(status, headers=headers, stream=Stream(body))

    asyncio.run(judged(kind, reply, asks_to_stream and kind in STREAMING))


@examples(150)
@given(kind=st.sampled_from(STREAMING), pieces=PIECES, then=ENDS)
def test_no_stream_is_more_than_a_stream_or_an_error(
    kind: Kind, pieces: list[bytes], then: str
) -> None:
    def reply() -> httpx.Response:
        return httpx.Response(200, headers=SSE, stream=Stream(*pieces, then=then))

    asyncio.run(judged(kind, reply, stream=True))


@examples(60)
@given(
    kind=st.sampled_from(KINDS),
    headers=st.dictionaries(
        st.sampled_from(["content-type", "retry-after", "connection", "content-encoding", "date"]),
        st.sampled_from(
            [
                "",
                "text/event-stream",
                "nan",
                "-1",
                "1e999",
                "9" * 400,
                "gzip",
                "retry-after",
                "\xff",
            ]
        ),
    ),
    status=STATUSES,
)
def test_no_header_of_an_engine_breaks_an_answer(
    kind: Kind, headers: dict[str, str], status: int
) -> None:
    def reply() -> httpx.Response:
        raw = [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]
        return httpx.Response(status, headers=raw, stream=Stream(b"{}"))

    asyncio.run(judged(kind, reply, stream=kind in STREAMING))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("number", [-1, 10**30, math.nan, 1.5, "7", None, True, {"a": 1}])
async def test_a_number_that_is_no_count_is_not_charged(kind: Kind, number: Any) -> None:
    names = ("prompt_tokens", "completion_tokens", "total_tokens", "input_tokens", "output_tokens")
    said = {"usage": dict.fromkeys(names, number), "count": number, "choices": []}
    body = json.dumps(said).encode()
    world = await judged(kind, lambda: httpx.Response(200, stream=Stream(body)), stream=False)
    assert world.record.usage_source == "estimated"
