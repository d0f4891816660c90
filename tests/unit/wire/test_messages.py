"""Anthropic's messages: what is read of a call, and what its answers and streams tell."""

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.dialects import DIALECTS
from gateway.errors import ANTHROPIC, ApiError, Outcome
from gateway.wire.events import MessagesMeter
from gateway.wire.request import ParsedCall, parse, rewrite
from gateway.wire.routes import ROUTES
from gateway.wire.usage import Report, Usage, finish_reason
from tests.unit.wire.frames import DONE, STOPPED, begun, run, said, told, typed

HELLO = [{"role": "user", "content": "Hello"}]
VLLM = DIALECTS["vllm"]


def read(**fields: Any) -> ParsedCall:
    body = {"model": "m", "max_tokens": 9, "messages": HELLO, **fields}
    return parse("messages", json.dumps(body).encode())


def meter() -> MessagesMeter:
    return MessagesMeter(VLLM, asked_usage=False)


def report(body: Any) -> Report:
    return ROUTES["messages"].report(json.dumps(body).encode(), VLLM)


def test_system_blocks_and_tools_are_part_of_the_prompt() -> None:
    plain = read().prompt_bytes
    assert plain == len("userHello")
    assert read(system="Be brief").prompt_bytes == plain + len("systemBe brief")
    blocks = [{"type": "text", "text": "Be brief", "cache_control": {"type": "ephemeral"}}]
    assert read(system=blocks).prompt_bytes == plain + len("systemBe brief")
    tools = [{"name": "weather", "input_schema": {"type": "object"}}]
    assert read(tools=tools).prompt_bytes > plain + 40


def test_pictures_are_media_and_results_of_tools_are_text() -> None:
    picture = {"type": "image", "source": {"type": "base64", "data": "x" * 5000}}
    used = {"type": "tool_use", "id": "1", "name": "f", "input": {"town": "Oslo"}}
    result = {"type": "tool_result", "tool_use_id": "1", "content": "rain"}
    long = {"type": "tool_result", "content": [{"type": "text", "text": "rain"}, picture]}
    turns = [*HELLO, {"role": "assistant", "content": [used]}]
    call = read(messages=[*turns, {"role": "user", "content": [result, long, picture]}])
    assert (call.messages, call.media) == (3, 2)
    assert 80 < call.prompt_bytes < 200


def test_the_prefix_is_that_of_the_whole_conversation() -> None:
    later = [*HELLO, {"role": "assistant", "content": "Hi"}, {"role": "user", "content": "More"}]
    assert read().prefix == read(messages=later).prefix
    assert read().prefix != read(system="Be brief").prefix


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"max_tokens": None}, "max_tokens"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": "9"}, "max_tokens"),
        ({"messages": []}, "messages"),
        ({"messages": "Hello"}, "messages"),
        ({"messages": [{"content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": "user"}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": [5]}]}, "messages[0].content"),
        ({"system": 5}, "system"),
        ({"stream": "yes"}, "stream"),
    ],
)
def test_odd_fields_are_refused_by_name(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(ApiError) as caught:
        read(**fields)
    assert (caught.value.outcome, caught.value.param) == (Outcome.INVALID_REQUEST, param)


def test_an_engine_gets_the_body_and_only_the_header_of_the_lane() -> None:
    call = read(stream=True, priority=-9)
    header = [(b"x-vllm-priority", b"20")]
    for kind, headers in {"vllm": header, "vllm-body": [], "sglang": [], "openai": []}.items():
        body, sent = rewrite(call, DIALECTS[kind], priority=20, cache_salt="s", served_model="m")  # type: ignore[index]
        assert sent == headers
        assert json.loads(body) == {name: v for name, v in call.body.items() if name != "priority"}


@pytest.mark.parametrize(
    ("usage", "found"),
    [
        ({"input_tokens": 7, "output_tokens": 3}, Usage(7, 0, 3)),
        ({"input_tokens": 7, "cache_read_input_tokens": 5, "output_tokens": 3}, Usage(12, 5, 3)),
        (
            {"input_tokens": 7, "cache_creation_input_tokens": 4, "output_tokens": 3},
            Usage(11, 0, 3),
        ),
        ({"input_tokens": 7, "cache_read_input_tokens": None, "output_tokens": 3}, Usage(7, 0, 3)),
        ({"output_tokens": 3}, None),
        ({"input_tokens": -7, "output_tokens": 3}, None),
        (None, None),
    ],
)
def test_a_prompt_is_what_was_new_and_what_a_cache_had(usage: Any, found: Usage | None) -> None:
    assert report({"content": [], "usage": usage}).usage == found


@pytest.mark.parametrize(
    ("reason", "recorded"),
    [
        ("end_turn", "stop"),
        ("stop_sequence", "stop"),
        ("max_tokens", "length"),
        ("tool_use", "tool_calls"),
        ("refusal", "content_filter"),
        ("something new", "stop"),
        (None, "stop"),
    ],
)
def test_reasons_become_the_records_words(reason: str | None, recorded: str) -> None:
    assert finish_reason(report({"stop_reason": reason}).finish_reasons) == recorded


def test_a_stream_tells_its_usage_at_both_ends() -> None:
    events = [
        begun(input_tokens=7, cache_read_input_tokens=5, output_tokens=0),
        said(),
        said("Let me see", "thinking"),
        told(output_tokens=8),
        STOPPED,
    ]
    metered = meter()
    assert run(metered, events) == b"".join(events)
    assert (metered.usage, metered.usage_is_final, metered.done) == (Usage(12, 5, 8), True, True)
    assert (metered.tokens, metered.finish_reasons) == (2, {0: "end_turn"})


def test_a_delta_may_tell_the_input_anew_or_only_of_the_cache() -> None:
    anew = meter()
    run(anew, [begun(input_tokens=9, output_tokens=0), told(input_tokens=4, output_tokens=2, cache_read_input_tokens=5)])  # noqa: E501 # fmt: skip
    assert anew.usage == Usage(9, 5, 2)
    cache_only = meter()
    run(cache_only, [begun(input_tokens=9, output_tokens=0), told(output_tokens=2, cache_read_input_tokens=5)])  # noqa: E501 # fmt: skip
    assert cache_only.usage == Usage(9, 5, 2)


def test_a_stream_that_is_cut_off_has_what_was_seen() -> None:
    metered = meter()
    run(metered, [begun(input_tokens=7, output_tokens=0), said(), said(), said("")])
    assert (metered.usage, metered.usage_is_final) == (Usage(7, 0, 2), False)
    assert not metered.finish().complete
    silent = meter()
    run(silent, [begun(), said()])
    assert (silent.usage, silent.tokens) == (None, 1)


def test_an_error_event_ends_it() -> None:
    failed = typed("error", error={"type": "overloaded_error", "message": "full"})
    metered = meter()
    assert run(metered, [begun(input_tokens=7, output_tokens=0), failed]).endswith(failed)
    assert metered.error is not None
    assert (metered.error.message, metered.error.type) == ("full", "overloaded_error")
    assert not metered.finish().complete


def test_what_comes_after_the_end_is_not_passed_on() -> None:
    metered = meter()
    assert run(metered, [begun(), STOPPED + said(), DONE]) == begun() + STOPPED


def test_errors_speak_anthropics_shape() -> None:
    error = ApiError(Outcome.RATE_LIMIT_EXCEEDED, "too many")
    body = {"type": "rate_limit_error", "message": "too many"}
    assert json.loads(ANTHROPIC.body(error, "r1")) == {
        "type": "error",
        "error": body,
        "request_id": "r1",
    }
    name, data = ANTHROPIC.event(error).decode().rstrip("\n").split("\n")
    assert name == "event: error"
    assert json.loads(data.removeprefix("data: "))["error"] == body


texts = st.sampled_from(["x", "", "\n\n", "data: {", '"usage":{"a":1}}', "é"])
counted = st.dictionaries(
    st.sampled_from(
        ["input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens"]
    ),
    st.integers(-1, 60) | st.none() | st.just("5"),
)
events = st.one_of(
    st.builds(lambda usage: begun(**usage), counted),
    st.builds(said, texts, st.sampled_from(["text", "thinking", "partial_json", "signature"])),
    st.builds(
        lambda reason, usage: told(reason, **usage), st.sampled_from([None, "max_tokens"]), counted
    ),
    st.sampled_from([STOPPED, DONE, b": ping\n\n", typed("ping"), b"data: odd\n\n", b"\n\n"]),
    st.builds(lambda text: typed("content_block_delta", b"\r\n", delta={"text": text}), texts),
)
streams = st.lists(events, max_size=10).map(b"".join)


@given(streams, st.lists(st.integers(0, 5_000), max_size=10))
def test_how_a_network_splits_it_changes_nothing(stream: bytes, places: list[int]) -> None:
    whole, parts = meter(), meter()
    cuts = sorted({0, len(stream), *(place % (len(stream) + 1) for place in places)})
    chunks = [stream[a:b] for a, b in pairwise(cuts)]
    assert run(whole, [stream]) == run(parts, chunks)
    for name in ("tokens", "usage", "usage_is_final", "finish_reasons", "done", "error"):
        assert getattr(whole, name) == getattr(parts, name), name


@given(
    st.binary(max_size=200)
    | st.recursive(st.none() | st.text() | st.integers(), st.lists).map(
        lambda value: json.dumps({"type": "message_delta", "delta": value, "usage": value}).encode()
    )
)
def test_nothing_that_an_engine_sends_breaks_it(data: bytes) -> None:
    metered = meter()
    run(metered, [b"data: " + data + b"\n\n"])
    ROUTES["messages"].report(data, VLLM)
