"""OpenAI's responses: what is read of a call, and what its answers and streams tell."""

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.dialects import DIALECTS
from gateway.errors import RESPONSES, ApiError, Outcome
from gateway.wire.events import ResponsesMeter
from gateway.wire.request import ParsedCall, parse, rewrite
from gateway.wire.routes import ROUTES
from gateway.wire.usage import Report, Usage, finish_reason
from tests.unit.wire.frames import DONE, run, typed

VLLM = DIALECTS["vllm"]
USAGE = {
    "input_tokens": 9,
    "input_tokens_details": {"cached_tokens": 4},
    "output_tokens": 5,
    "output_tokens_details": {"reasoning_tokens": 3},
}


def read(**fields: Any) -> ParsedCall:
    return parse("responses", json.dumps({"model": "m", "input": "Hello", **fields}).encode())


def meter() -> ResponsesMeter:
    return ResponsesMeter(VLLM, asked_usage=False)


def report(body: Any) -> Report:
    return ROUTES["responses"].report(json.dumps(body).encode(), VLLM)


def begun() -> bytes:
    return typed("response.created", response={"status": "in_progress", "usage": None})


def said(text: str = " x", kind: str = "output_text") -> bytes:
    return typed(f"response.{kind}.delta", delta=text)


def ended(status: str = "completed", kind: str = "", **more: Any) -> bytes:
    response = {"status": status, "usage": USAGE, "output": [], **more}
    return typed(f"response.{kind or status}", response=response)


def test_text_items_and_instructions_are_the_prompt() -> None:
    assert read().prompt_bytes == len("userHello")
    assert read(instructions="Be brief").prompt_bytes == len("systemBe briefuserHello")
    parts = [{"type": "input_text", "text": "Hello"}, {"type": "input_image", "image_url": "x"}]
    call = read(input=[{"role": "user", "content": parts}])
    assert (call.prompt_bytes, call.media) == (len("userHello"), 1)
    tools = [{"type": "function", "name": "weather", "parameters": {}}]
    assert read(tools=tools).prompt_bytes > len("userHello") + 40


def test_what_tools_said_and_what_was_thought_counts() -> None:
    used = {"type": "function_call", "call_id": "1", "name": "f", "arguments": "{}"}
    result = {"type": "function_call_output", "call_id": "1", "output": "rain"}
    thought = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]}
    call = read(input=[{"role": "user", "content": "Hello"}, used, result, thought])
    assert call.messages == 4
    assert call.prompt_bytes > 120


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"input": None}, "input"),
        ({"input": []}, "input"),
        ({"input": {"role": "user"}}, "input"),
        ({"input": ["Hello"]}, "input[0]"),
        ({"input": [{"role": "user", "content": 5}]}, "input[0].content"),
        ({"input": [{"role": "user"}] * 20_001}, "input"),
        ({"instructions": 5}, "instructions"),
        ({"max_output_tokens": 0}, "max_output_tokens"),
        ({"max_output_tokens": "9"}, "max_output_tokens"),
        ({"stream": 1}, "stream"),
    ],
)
def test_odd_fields_are_refused_by_name(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(ApiError) as caught:
        read(**fields)
    assert (caught.value.outcome, caught.value.param) == (Outcome.INVALID_REQUEST, param)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"previous_response_id": "resp_1"}, "previous_response_id"),
        ({"previous_response_id": ""}, "previous_response_id"),
        ({"conversation": {"id": "c"}}, "conversation"),
        ({"background": True}, "background"),
        ({"background": "yes"}, "background"),
        ({"input": [{"type": "item_reference", "id": "msg_1"}]}, "input[0]"),
        ({"input": [{"id": "msg_1"}]}, "input[0]"),
    ],
)
def test_nothing_refers_to_what_another_tenants_call_left(
    fields: dict[str, Any], param: str
) -> None:
    with pytest.raises(ApiError) as caught:
        read(**fields)
    assert (caught.value.outcome, caught.value.param) == (Outcome.INVALID_REQUEST, param)


def test_an_engine_stores_nothing_and_gets_the_lanes_fields() -> None:
    call = read(stream=True, store=True, priority=-9, background=None, previous_response_id=None)
    options: dict[str, Any] = {"priority": 20, "cache_salt": "s", "served_model": "m"}
    body, headers = rewrite(call, VLLM, **options, max_output_tokens=50)
    sent = json.loads(body)
    assert (sent["store"], sent["max_output_tokens"]) == (False, 50)
    assert (sent["cache_salt"], headers) == ("s", [(b"x-vllm-priority", b"20")])
    assert not {"priority", "stream_options", "max_tokens"} & sent.keys()
    body, headers = rewrite(call, DIALECTS["openai"], **options)
    assert json.loads(body).keys() == call.body.keys() - {"priority"}


def test_a_key_that_stands_twice_reaches_the_engine_as_it_was_read() -> None:
    raw = b'{"model":"m","input":"x","store":false,"background":true,"background":false}'
    body, _ = rewrite(
        parse("responses", raw), DIALECTS["openai"], priority=1, cache_salt=None, served_model="m"
    )
    assert body.count(b"background") == 1


@pytest.mark.parametrize(
    ("usage", "found"),
    [
        (USAGE, Usage(9, 4, 5)),
        ({"input_tokens": 9, "output_tokens": 5}, Usage(9, 0, 5)),
        ({"input_tokens": 9, "output_tokens": 5, "input_tokens_details": None}, Usage(9, 0, 5)),
        ({"input_tokens": 9}, None),
        ({"input_tokens": 9, "output_tokens": -5}, None),
        (None, None),
    ],
)
def test_usage_of_a_whole_answer(usage: Any, found: Usage | None) -> None:
    assert report({"status": "completed", "usage": usage}).usage == found


@pytest.mark.parametrize(
    ("told", "recorded"),
    [
        ({"status": "completed"}, "stop"),
        ({"status": "completed", "output": [{"type": "function_call"}]}, "tool_calls"),
        ({"status": "incomplete"}, "length"),
        ({"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}, "length"),
        (
            {"status": "incomplete", "incomplete_details": {"reason": "content_filter"}},
            "content_filter",
        ),
        ({"status": "failed"}, "error"),
        ({"status": 5, "output": 5}, "stop"),
        ({}, "stop"),
    ],
)
def test_status_becomes_the_records_word(told: dict[str, Any], recorded: str) -> None:
    assert finish_reason(report(told).finish_reasons) == recorded


@pytest.mark.parametrize("status", ["completed", "incomplete"])
def test_a_stream_tells_all_at_its_end(status: str) -> None:
    events = [begun(), said(), said("hm", "reasoning_text"), ended(status)]
    metered = meter()
    assert run(metered, [*events, DONE]) == b"".join(events)
    assert (metered.usage, metered.usage_is_final, metered.done) == (Usage(9, 4, 5), True, True)
    assert metered.tokens == 2


def test_one_that_was_cut_off_by_its_limit_may_end_by_another_name() -> None:
    metered = meter()
    run(metered, [ended("incomplete", kind="completed")])
    assert finish_reason(metered.finish_reasons) == "length"


def test_a_stream_that_is_cut_off_has_what_was_seen() -> None:
    metered = meter()
    run(metered, [begun(), said(), said(""), said()])
    assert (metered.usage, metered.tokens) == (None, 2)
    assert not metered.finish().complete


@pytest.mark.parametrize(
    "failed",
    [
        typed("error", code="server_error", message="broken", param=None),
        ended("failed", error={"code": "server_error", "message": "broken"}),
    ],
)
def test_a_failure_is_an_error_whatever_came_before(failed: bytes) -> None:
    metered = meter()
    assert run(metered, [begun(), said(), failed]).endswith(failed)
    assert metered.error is not None
    assert (metered.error.message, metered.error.code) == ("broken", "server_error")
    assert not metered.finish().complete


def test_a_broken_stream_ends_with_an_event_that_every_client_takes_for_an_error() -> None:
    event = RESPONSES.event(ApiError(Outcome.ENGINE_ERROR, "broke off"))
    name, data = event.decode().rstrip("\n").split("\n")
    told = json.loads(data.removeprefix("data: "))
    assert (name, told["type"], told["code"]) == ("event: error", "error", "engine_error")
    assert told["error"]["message"] == told["message"] == "broke off"


texts = st.sampled_from(["x", "", "\n\n", "data: {", '"usage":{"a":1}}', "é"])
events = st.one_of(
    st.just(begun()),
    st.builds(said, texts, st.sampled_from(["output_text", "refusal", "function_call_arguments"])),
    st.builds(ended, st.sampled_from(["completed", "incomplete", "failed", "odd"])),
    st.sampled_from([DONE, b": ping\n\n", b"data: odd\n\n", b"\n\n", typed("error", b"\r\n")]),
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


anything = st.recursive(st.none() | st.text() | st.integers(), st.lists, max_leaves=4)


@given(anything, anything)
def test_nothing_that_an_engine_sends_breaks_it(one: Any, other: Any) -> None:
    told = {"status": "completed", "output": one, "usage": other, "incomplete_details": one}
    for response in (one, told, told | {"status": "failed", "error": other}):
        run(meter(), [typed("response.completed", response=response)])
        report(response)
    run(meter(), [typed("error", error=one, message=other)])
