"""What a caller asks is read once, and a malformed call is refused before it takes a slot."""

import gzip
import json
import subprocess
import sys
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.dialects import DIALECTS
from gateway.errors import ApiError, Outcome
from gateway.wire.request import ParsedCall, parse
from gateway.wire.routes import Kind
from tests.unit.gateway.world import ASKED

HELLO = [{"role": "user", "content": "Hello"}]


def chat(**fields: Any) -> ParsedCall:
    return parse("chat", json.dumps({"model": "m", "messages": HELLO, **fields}).encode())


def completion(**fields: Any) -> ParsedCall:
    return parse("completions", json.dumps({"model": "m", "prompt": "Hi", **fields}).encode())


def refusal(kind: Kind, body: bytes) -> ApiError:
    with pytest.raises(ApiError) as caught:
        parse(kind, body)
    assert caught.value.outcome is Outcome.INVALID_REQUEST
    return caught.value


def test_a_plain_chat_call() -> None:
    call = chat(max_tokens=7)
    assert (call.model, call.stream, call.n, call.max_output_tokens) == ("m", False, 1, 7)
    assert (call.messages, call.prompts, call.media, call.choices) == (1, 1, 0, 1)
    assert call.prompt_bytes == len("user" + "Hello")


def test_nothing_is_demanded_but_model_and_content() -> None:
    assert chat().max_output_tokens is None
    assert completion().max_output_tokens is None


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b'"text"',
        b"null",
        b"{",
        b'{"model": "m", "messages": NaN}',
        b'{"model": "\xff"}',
        b"\xef\xbb\xbf{}",
        b"[" * 100_000,
        b'{"model":"m","messages":[{"role":"user","content":' + b"[" * 50_000,
    ],
)
def test_what_is_not_a_json_object_is_refused(body: bytes) -> None:
    refusal("chat", body)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"model": None}, "model"),
        ({"model": ""}, "model"),
        ({"model": 5}, "model"),
        ({"model": "m" * 300}, "model"),
        ({"n": 0}, "n"),
        ({"n": 1.5}, "n"),
        ({"n": True}, "n"),
        ({"n": "2"}, "n"),
        ({"n": 10**9}, "n"),
        ({"max_tokens": -1}, "max_tokens"),
        ({"max_tokens": "10"}, "max_tokens"),
        ({"max_tokens": 10**30}, "max_tokens"),
        ({"max_completion_tokens": 0.5}, "max_completion_tokens"),
        ({"max_completion_tokens": 0}, "max_completion_tokens"),  # vLLM: no limit
        ({"max_tokens": 0}, "max_tokens"),  # SGLang: no limit
        ({"stream": "yes"}, "stream"),
        ({"stream": 1}, "stream"),
        ({"stream": True, "stream_options": []}, "stream_options"),
        (
            {"stream": True, "stream_options": {"include_usage": 1}},
            "stream_options.include_usage",
        ),
        ({"messages": None}, "messages"),
        ({"messages": []}, "messages"),
        ({"messages": "Hello"}, "messages"),
        ({"messages": {"role": "user"}}, "messages"),
        ({"messages": ["Hello"]}, "messages[0]"),
        ({"messages": [{"content": "Hello"}]}, "messages[0].role"),
        ({"messages": [*HELLO, {"role": 3, "content": "x"}]}, "messages[1].role"),
        ({"messages": [{"role": "user", "content": 5}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": [5]}]}, "messages[0].content"),
    ],
)
def test_odd_chat_fields_are_refused_by_name(fields: dict[str, Any], param: str) -> None:
    body = json.dumps({"model": "m", "messages": HELLO, **fields}).encode()
    assert refusal("chat", body).param == param


@pytest.mark.parametrize(
    "prompt", [None, 5, {}, [], [1, "a"], ["a", 1], [[]], [[1], []], [1.5], [True], [-1], [None]]
)
def test_odd_prompts_are_refused(prompt: Any) -> None:
    body = json.dumps({"model": "m", "prompt": prompt}).encode()
    assert refusal("completions", body).param == "prompt"


def test_a_list_of_too_many_prompts_is_refused() -> None:
    body = json.dumps({"model": "m", "prompt": ["a"] * 5000}).encode()
    assert refusal("completions", body).param == "prompt"


@pytest.mark.parametrize("filler", [b"[]", b"{}", b"[[[[]]]]"])
def test_a_body_of_very_many_parts_is_refused_before_it_is_decoded(filler: bytes) -> None:
    body = b'{"model":"m","messages":[{"role":"user","content":"x"}],"more":[%b]}'
    many = b",".join([filler] * 600_000)
    assert "brackets" in refusal("chat", body % many).message
    assert "brackets" in refusal("chat", (body % many)[:-1]).message  # it would not decode
    assert parse("chat", body % b",".join([filler] * 50_000)).messages == 1


def test_very_many_messages_are_refused() -> None:
    body = {"model": "m", "messages": [{"role": "user"}] * 20_001}
    assert refusal("chat", json.dumps(body).encode()).param == "messages"


def test_null_means_not_given() -> None:
    call = chat(n=None, max_tokens=None, stream=None, stream_options=None)
    assert (call.n, call.max_output_tokens, call.stream) == (1, None, False)


def test_the_larger_output_limit_counts_as_engines_differ_in_which_they_follow() -> None:
    assert chat(max_tokens=100, max_completion_tokens=7).max_output_tokens == 100
    assert chat(max_tokens=7, max_completion_tokens=100).max_output_tokens == 100
    assert chat(max_tokens=100).max_output_tokens == 100
    assert completion(max_tokens=9, max_completion_tokens=1).max_output_tokens == 9


def test_best_of_generates_more_than_it_returns() -> None:
    assert completion(n=2, best_of=5).n == 5
    assert completion(n=2).n == 2


def test_whether_the_caller_asked_for_usage() -> None:
    assert not chat(stream=True).include_usage
    assert chat(stream=True, stream_options={"include_usage": True}).include_usage
    assert not chat(stream=False, stream_options={"include_usage": True}).include_usage
    both = {"include_usage": True, "continuous_usage_stats": True}
    assert chat(stream=True, stream_options=both).running_usage
    assert not chat(stream=True, stream_options={"continuous_usage_stats": True}).running_usage


def test_list_prompts_are_counted_and_token_arrays_exactly() -> None:
    texts = completion(prompt=["ab", "cde"], n=2)
    assert (texts.prompts, texts.choices, texts.prompt_bytes) == (2, 4, 5)
    tokens = completion(prompt=[5, 6, 7])
    assert (tokens.prompts, tokens.prompt_tokens, tokens.prompt_bytes) == (1, 3, 0)
    lists = completion(prompt=[[5, 6, 7], [8]])
    assert (lists.prompts, lists.prompt_tokens) == (2, 4)


def test_all_that_a_template_renders_counts() -> None:
    tools = [{"type": "function", "function": {"name": "f", "parameters": {}}}]
    assert chat(tools=tools).prompt_bytes > chat().prompt_bytes + 40
    calls = [{"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]
    told = [*HELLO, {"role": "assistant", "content": None, "tool_calls": calls}]
    assert chat(messages=told).prompt_bytes > chat().prompt_bytes + 50
    named = [{"role": "user", "content": "Hello", "name": "Bob"}]
    assert chat(messages=named).prompt_bytes == chat().prompt_bytes + 3


def test_text_that_a_caller_hides_from_messages_counts() -> None:
    """gpt-oss's template renders `model_identity`; SGLang's chats take tools in a message."""
    long = "x" * 5000
    kwargs = {"model_identity": long}
    assert chat(chat_template_kwargs=kwargs).prompt_bytes > chat().prompt_bytes + 5000
    tools = [{"type": "function", "function": {"name": "f", "description": long}}]
    hidden = [{"role": "user", "content": "Hello", "tools": tools}]
    assert chat(messages=hidden).prompt_bytes > chat().prompt_bytes + 5000


def test_text_is_counted_in_utf8_bytes_however_it_was_escaped() -> None:
    plain = json.dumps(
        {"model": "m", "messages": [{"role": "user", "content": "漢字"}]}, ensure_ascii=False
    )
    assert "漢" in plain
    escaped = chat(messages=[{"role": "user", "content": "漢字"}])
    assert parse("chat", plain.encode()).prompt_bytes == escaped.prompt_bytes == 4 + 6


def test_media_parts_are_counted_apart_from_text() -> None:
    parts = [
        {"type": "text", "text": "what is this"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 9000}},
        {"type": "input_audio", "input_audio": {"data": "AAAA"}},
    ]
    call = chat(messages=[{"role": "user", "content": parts}])
    assert call.media == 2
    assert call.prompt_bytes == len("user" + "what is this")


def test_turns_of_one_conversation_share_a_prefix_and_others_do_not() -> None:
    system = {"role": "system", "content": "You are a bot."}
    first = [system, *HELLO]
    later = [*first, {"role": "assistant", "content": "Hi!"}, {"role": "user", "content": "Next"}]
    other = [system, {"role": "user", "content": "Something else"}]
    assert chat(messages=first).prefix == chat(messages=later).prefix
    assert chat(messages=first).prefix != chat(messages=other).prefix


def test_long_shared_openings_are_one_prefix() -> None:
    system = {"role": "system", "content": "Rules. " * 1000}
    prefixes = {chat(messages=[system, {"role": "user", "content": text}]).prefix for text in "abc"}
    assert len(prefixes) == 1


def test_the_prefix_is_the_same_in_another_process() -> None:
    program = (
        "from gateway.wire.request import parse;"
        'print(parse("completions", b\'{"model":"m","prompt":"Hi"}\').prefix)'
    )
    other = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert int(other.stdout) == completion().prefix


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=12,
)
FIELDS = ["model", "messages", "prompt", "n", "best_of", "max_tokens", "max_completion_tokens"]
FIELDS += ["stream", "stream_options", "tools", "suffix", "functions"]
messages = st.lists(
    st.dictionaries(st.sampled_from(["role", "content", "tool_calls", "name"]), json_values),
    max_size=3,
)
kinds = st.sampled_from(["chat", "completions"])


def parsed_or_refused(kind: Kind, body: bytes) -> ParsedCall | Outcome:
    try:
        return parse(kind, body)
    except ApiError as error:
        return error.outcome


@given(kinds, st.binary(max_size=200))
def test_no_bytes_raise_anything_else(kind: Kind, body: bytes) -> None:
    assert parsed_or_refused(kind, body) is Outcome.INVALID_REQUEST


@given(kinds, st.dictionaries(st.sampled_from(FIELDS), json_values | messages))
def test_no_object_raises_anything_else(kind: Kind, fields: dict[str, Any]) -> None:
    body = json.dumps({"model": "m", "messages": HELLO, "prompt": "Hi", **fields}).encode()
    call = parsed_or_refused(kind, body)
    if isinstance(call, ParsedCall):
        assert call.prefix > 0
        assert call.n >= 1
        assert call.prompt_bytes >= 0
    else:
        assert call is Outcome.INVALID_REQUEST


@pytest.mark.parametrize("kind", get_args(Kind))
@pytest.mark.parametrize(
    "name", ["Model", "MAX_TOKENS", "max_to\u212aens", "N", "Priority", "\u017ftream", "Messages"]
)
def test_a_key_of_policy_s_in_other_letters_is_refused_by_name(kind: Kind, name: str) -> None:
    """Engines in Go would take it for that key, and the last of the two for its value."""
    with pytest.raises(ApiError) as refused:
        parse(kind, json.dumps({"model": "m", **ASKED[kind], name: 9}).encode())
    assert refused.value.param == name
    assert f"must be written {name.casefold()}" in refused.value.message


def test_no_caller_may_spell_a_dropped_field_otherwise() -> None:
    for dialect in DIALECTS.values():
        for name in dialect.dropped:
            with pytest.raises(ApiError):
                parse("chat", json.dumps({**ASKED["chat"], "model": "m", name.upper(): 1}).encode())


def test_other_names_may_be_written_as_one_likes() -> None:
    own = {"userId": 1, "É": 2, "\u212a": 3, "": 4, "7": 5}
    assert parse("chat", json.dumps({"model": "m", **ASKED["chat"], **own}).encode()).model == "m"


@pytest.mark.parametrize("text", ["\\ud800", "\\uDC00", "\\ud83d\\u0041"])
def test_half_of_a_surrogate_pair_is_named(text: str) -> None:
    body = b'{"model": "m", "messages": [{"role": "user", "content": "%b"}]}' % text.encode()
    assert "surrogate" in refusal("chat", body).message
    assert "surrogate" not in refusal("chat", b'{"model": "m", "messages": [').message


def test_a_compressed_body_is_called_that() -> None:
    body = json.dumps({"model": "m", "messages": HELLO}).encode()
    assert "compressed" in refusal("chat", gzip.compress(body)).message
    assert "compressed" in refusal("chat", b"\x28\xb5\x2f\xfd" + body).message
    assert "compressed" not in refusal("chat", body[1:]).message
