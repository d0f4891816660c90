"""Calls that generate nothing: what is read of them, what an engine gets, what its answer tells."""

import json
from typing import Any

import pytest

from gateway.dialects import DIALECTS
from gateway.errors import ApiError, Outcome
from gateway.wire.request import ParsedCall, parse, rewrite
from gateway.wire.routes import ROUTES, Kind
from gateway.wire.usage import Report, Usage
from tenants.core.snapshot import EngineKind

POOLING: list[Kind] = ["embeddings", "rerank", "score"]
GOOD: dict[Kind, dict[str, Any]] = {
    "embeddings": {"input": "abcd"},
    "rerank": {"query": "ab", "documents": ["cd", "e"]},
    "score": {"text_1": "ab", "text_2": ["cd", "e"]},
    "tokenize": {"prompt": "abcd"},
}


def read(kind: Kind, **fields: Any) -> ParsedCall:
    return parse(kind, json.dumps({"model": "m", **fields}).encode())


def report(kind: Kind, body: Any, engine: EngineKind = "vllm") -> Report:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return ROUTES[kind].report(data, DIALECTS[engine])


def sizes(call: ParsedCall) -> tuple[int, int, int, int]:
    return call.prompt_bytes, call.prompt_tokens, call.prompts, call.media


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ("abcd", (4, 0, 1, 0)),
        (["ab", "é"], (4, 0, 2, 0)),
        ([5, 6, 7], (0, 3, 1, 0)),
        ([[5, 6], [7]], (0, 3, 2, 0)),
    ],
)
def test_embeddings_take_texts_and_tokens_one_or_many(given: Any, found: tuple[int, ...]) -> None:
    assert sizes(read("embeddings", input=given)) == found


def test_embeddings_of_messages_are_counted_like_a_chat() -> None:
    picture = {"type": "image_url", "image_url": {"url": "data:,"}}
    message = {"role": "user", "content": [{"type": "text", "text": "ab"}, picture]}
    assert sizes(read("embeddings", messages=[message])) == (6, 0, 1, 1)


def test_a_query_counts_as_often_as_it_is_read() -> None:
    assert sizes(read("rerank", query="abc", documents=["d", {"text": "ef"}])) == (9, 0, 2, 0)
    assert sizes(read("score", text_1="abc", text_2=["d", "ef"])) == (9, 0, 2, 0)
    assert sizes(read("score", text_1=["a", "b"], text_2=["d", "ef"])) == (5, 0, 2, 0)
    assert sizes(read("score", query=[1, 2], items=[[3], [4, 5]])) == (0, 7, 2, 0)
    shown = {"content": [{"type": "text", "text": "d"}, {"type": "image_url"}]}
    assert sizes(read("rerank", query="abc", documents=[shown])) == (4, 0, 1, 1)


@pytest.mark.parametrize(
    ("kind", "fields", "param"),
    [
        ("embeddings", {}, "input"),
        ("embeddings", {"input": []}, "input"),
        ("embeddings", {"input": [1, "a"]}, "input"),
        ("embeddings", {"input": {"text": "a"}}, "input"),
        ("embeddings", {"input": ["a"] * 3000}, "input"),
        ("rerank", {"documents": ["a"]}, "query"),
        ("rerank", {"query": "a"}, "documents"),
        ("rerank", {"query": "a", "documents": []}, "documents"),
        ("rerank", {"query": "a", "documents": [5, "a"]}, "documents"),
        ("rerank", {"query": "a", "documents": ["a"] * 3000}, "documents"),
        ("rerank", {"query": "a", "documents": [{"content": [5]}]}, "documents"),
        ("score", {"text_1": "a"}, "text_1"),
        ("score", {"text_1": "a", "text_2": 5}, "text_2"),
        ("score", {"text_1": ["a", "b"], "text_2": ["a", "b", "c"]}, "text_1"),
        ("score", {"queries": ["a", "b"], "documents": "a"}, "queries"),
        ("tokenize", {}, "prompt"),
        ("tokenize", {"prompt": 5}, "prompt"),
        ("tokenize", {"messages": []}, "messages"),
        *((kind, {**fields, "model": ""}, "model") for kind, fields in GOOD.items()),
    ],
)
def test_odd_fields_are_refused_by_name(kind: Kind, fields: dict[str, Any], param: str) -> None:
    with pytest.raises(ApiError) as caught:
        read(kind, **fields)
    assert (caught.value.outcome, caught.value.param) == (Outcome.INVALID_REQUEST, param)


@pytest.mark.parametrize("kind", GOOD)
def test_fields_of_generating_calls_mean_nothing_here(kind: Kind) -> None:
    call = read(kind, **GOOD[kind], stream=True, n=7, max_tokens="x", stream_options=5)
    assert (call.stream, call.n, call.max_output_tokens) == (False, 1, None)
    sent, _ = rewrite(
        call, DIALECTS["openai"], priority=1, cache_salt="s", served_model="m", max_output_tokens=9
    )
    assert sent == call.raw


@pytest.mark.parametrize("kind", POOLING)
def test_priority_goes_into_the_body_where_no_header_is_read(kind: Kind) -> None:
    call = read(kind, **GOOD[kind], priority=-5)
    for engine, priority in (("vllm", 20), ("vllm-body", 20), ("sglang", -20), ("openai", None)):
        body, headers = rewrite(
            call, DIALECTS[engine], priority=20, cache_salt="s", served_model="m"
        )
        sent = json.loads(body)
        assert sent.get("priority") == priority
        assert (sent.get("cache_salt") == "s") is (engine != "openai")
        assert headers == []


def test_tokenize_gets_neither_priority_nor_salt() -> None:
    call = read("tokenize", prompt="ab", priority=-5)
    body, headers = rewrite(
        call, DIALECTS["vllm"], priority=20, cache_salt="s", served_model="real"
    )
    assert (json.loads(body), headers) == ({"model": "real", "prompt": "ab"}, [])


def test_the_tokens_that_llamacpp_lists_are_counted() -> None:
    assert report("tokenize", {"tokens": list(range(250))}).usage == Usage(3, 0, 0)
    assert report("tokenize", {"tokens": "abc"}).usage is None


@pytest.mark.parametrize("kind", POOLING)
@pytest.mark.parametrize(
    ("usage", "found"),
    [
        ({"prompt_tokens": 7, "total_tokens": 7}, Usage(7, 0, 0)),
        ({"prompt_tokens": 7, "total_tokens": 7, "completion_tokens": 0}, Usage(7, 0, 0)),
        ({"total_tokens": 9}, Usage(9, 0, 0)),
        ({"prompt_tokens": 7, "prompt_tokens_details": {"cached_tokens": 4}}, Usage(7, 4, 0)),
        ({"prompt_tokens": None, "total_tokens": 9}, Usage(9, 0, 0)),
        ({}, None),
        (None, None),
        ({"total_tokens": -1}, None),
        ([], None),
    ],
)
def test_usage_is_of_the_prompt(kind: Kind, usage: Any, found: Usage | None) -> None:
    told = report(kind, {"data": [{"embedding": [0.5, 1e-9]}], "usage": usage})
    assert (told.usage, told.exact) == (found, True)


@pytest.mark.parametrize("body", [b"", b"x", b"[]", b'"a"', b"{", b'{"usage":NaN}', b"\xff"])
def test_what_is_no_answer_tells_nothing(body: bytes) -> None:
    for kind in (*POOLING, "tokenize"):
        assert report(kind, body).usage is None


def test_numbers_that_are_no_json_do_not_hide_the_usage() -> None:
    body = b'{"data":[{"embedding":[NaN,Infinity]}],"usage":{"total_tokens":3}}'
    assert report("embeddings", body).usage == Usage(3, 0, 0)


@pytest.mark.parametrize(
    ("count", "charged"),
    [(0, 1), (1, 1), (100, 1), (101, 2), (12_345, 124), ([60, 60], 2), ("5", None), (None, 1)],
)
def test_a_hundredth_of_what_was_counted_is_charged(count: Any, charged: int | None) -> None:
    """Where no count is told, as by llama.cpp, the tokens themselves are counted."""
    told = report("tokenize", {"count": count, "tokens": [1, 2], "max_model_len": 8})
    assert told.usage == (None if charged is None else Usage(charged, 0, 0))
