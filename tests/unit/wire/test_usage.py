"""An engine's answer is read with patience: what makes no sense is not there."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.dialects import DIALECTS
from gateway.wire.usage import Report, Usage, finish_reason, read_body, read_usage

VLLM = DIALECTS["vllm"]


def report(body: Any, kind: str = "vllm") -> Report:
    return read_body(json.dumps(body).encode(), DIALECTS[kind])


def test_usage_with_cached_tokens() -> None:
    usage = {
        "prompt_tokens": 30,
        "completion_tokens": 20,
        "total_tokens": 50,
        "prompt_tokens_details": {"cached_tokens": 16},
    }
    assert report({"usage": usage}).usage == Usage(30, 16, 20)


@pytest.mark.parametrize("details", [None, {}, [], "x", {"cached_tokens": None}])
def test_missing_details_mean_nothing_cached(details: Any) -> None:
    given_usage = {
        "prompt_tokens": 3,
        "completion_tokens": 2,
        "prompt_tokens_details": details,
    }
    assert read_usage(given_usage) == Usage(3, 0, 2)


def test_cached_never_exceeds_the_prompt() -> None:
    given_usage = {
        "prompt_tokens": 3,
        "completion_tokens": 2,
        "prompt_tokens_details": {"cached_tokens": 999},
    }
    assert read_usage(given_usage) == Usage(3, 3, 2)


@pytest.mark.parametrize("odd", [-1, 10**18, "12", 1.5, True, None, [], {}])
def test_what_cannot_be_a_count_is_not_one(odd: Any) -> None:
    assert read_usage({"prompt_tokens": odd, "completion_tokens": 5}) is None
    assert read_usage({"prompt_tokens": 5, "completion_tokens": odd}) is None
    mended = {"prompt_tokens": odd, "completion_tokens": 5, "total_tokens": 12}
    assert read_usage(mended) == Usage(7, 0, 5)


def test_a_total_that_contradicts_is_no_help() -> None:
    assert read_usage({"prompt_tokens": 9, "total_tokens": 5}) is None


def test_embeddings_have_a_prompt_and_no_completion() -> None:
    assert read_usage({"prompt_tokens": 9, "total_tokens": 9}) == Usage(9, 0, 0)


def test_finish_reasons_are_by_choice_and_the_first_one_names_the_end() -> None:
    choices = [{"index": 1, "finish_reason": "length"}, {"index": 0, "finish_reason": "stop"}]
    reasons = report({"choices": choices}).finish_reasons
    assert reasons == {0: "stop", 1: "length"}
    assert finish_reason(reasons) == "stop"


@pytest.mark.parametrize(
    ("engines", "ours"),
    [
        ("function_call", "tool_calls"),
        ("content_filter", "content_filter"),
        ("abort", "error"),
        ("repetition", "stop"),
    ],
)
def test_engines_words_become_the_record_s(engines: str, ours: str) -> None:
    assert finish_reason({0: engines}) == ours
    assert finish_reason({}) == "stop"


def test_llamacpp_tells_one_choice_of_several() -> None:
    body = {
        "usage": {"prompt_tokens": 10, "completion_tokens": 6},
        "choices": [{"index": 0}, {"index": 1}],
    }
    told = report(body, "llamacpp")
    assert (told.usage, told.exact) == (Usage(10, 0, 12), False)
    assert report(body).usage == Usage(10, 0, 6)
    assert report(body).exact


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"error": {"message": "too long", "code": 400, "param": "input_tokens"}}, "too long"),
        ({"object": "error", "message": "queue is full", "code": 503}, "queue is full"),
        ({"error": "Model is overloaded", "error_type": "overloaded"}, "Model is overloaded"),
        ({"error": {"message": None}}, "the engine reported an error"),
        ({"error": ["x"]}, "the engine reported an error"),
    ],
)
def test_errors_of_each_engine_s_shape_are_seen(body: Any, message: str) -> None:
    error = report(body).error
    assert error is not None
    assert error.message == message


def test_codes_become_texts() -> None:
    error = report({"error": {"message": "no", "type": "BadRequestError", "code": 400}}).error
    assert error is not None
    assert (error.code, error.type, error.param) == ("400", "BadRequestError", None)


def test_no_error_where_there_is_none() -> None:
    assert report({"error": None, "choices": []}).error is None


def test_half_a_character_in_a_text_takes_nothing_from_the_rest() -> None:
    """A text that was cut off between two bytes of one is passed on as it came."""
    body = b'{"choices":[{"text":"\xf0\x9f"}],"usage":{"prompt_tokens":1,"completion_tokens":2}}'
    assert read_body(body, VLLM).usage == Usage(1, 0, 2)
    assert read_body(b"\xef\xbb\xbf" + body, VLLM).usage == Usage(1, 0, 2)


def test_what_strict_json_refuses_is_still_read() -> None:
    body = b'{"x": NaN, "y": "\\ud800", "usage": {"prompt_tokens": 1, "completion_tokens": 2}}'
    assert read_body(body, VLLM).usage == Usage(1, 0, 2)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=10,
)
named = st.dictionaries(
    st.sampled_from(["usage", "choices", "error", "object", "error_type"]),
    json_values
    | st.dictionaries(
        st.sampled_from(
            ["prompt_tokens", "completion_tokens", "total_tokens", "prompt_tokens_details"]
        ),
        json_values,
    )
    | st.lists(
        st.dictionaries(st.sampled_from(["index", "finish_reason"]), json_values), max_size=3
    ),
)


@given(st.binary(max_size=100) | named.map(lambda body: json.dumps(body).encode()))
def test_nothing_an_engine_says_raises(body: bytes) -> None:
    for dialect in DIALECTS.values():
        told = read_body(body, dialect)
        finish_reason(told.finish_reasons)
        if told.usage:
            assert 0 <= told.usage.cached <= told.usage.prompt
            assert told.usage.completion >= 0
