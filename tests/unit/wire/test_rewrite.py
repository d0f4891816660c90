"""The engine gets what policy decided, in its own form, and all else as the caller wrote it."""

import json
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.dialects import DIALECTS, INT64, engine_priority
from gateway.wire.request import ParsedCall, parse, rewrite
from tenants.core.snapshot import EngineKind

KINDS = get_args(EngineKind)
BASE = {"model": "m", "messages": [{"role": "user", "content": "Hello"}]}
Sent = tuple[dict[str, Any], dict[bytes, bytes]]


def chat(**fields: Any) -> ParsedCall:
    return parse("chat", json.dumps({**BASE, **fields}).encode())


def send(call: ParsedCall, kind: EngineKind = "vllm", **options: Any) -> Sent:
    given = {"priority": 20, "cache_salt": None, "served_model": "m", **options}
    body, headers = rewrite(call, DIALECTS[kind], **given)
    return json.loads(body), dict(headers)


def test_each_engine_of_the_policy_has_a_dialect() -> None:
    assert set(DIALECTS) == set(KINDS)


@pytest.mark.parametrize("kind", KINDS)
def test_a_caller_never_chooses_its_priority(kind: EngineKind) -> None:
    body, headers = send(chat(priority=-5), kind)
    said = [body.get("priority"), headers.get(b"x-vllm-priority")]
    assert all(value in (None, 20, -20, b"20") for value in said)


def test_priority_speaks_each_engine_s_form() -> None:
    assert send(chat())[1] == {b"x-vllm-priority": b"20"}
    assert send(chat(), "vllm-body")[0]["priority"] == 20
    assert send(chat(), "sglang")[0]["priority"] == -20, "higher is sooner there"
    for kind in ("llamacpp", "openai", "llm-d"):
        body, headers = send(chat(), kind)
        assert "priority" not in body
        assert b"x-vllm-priority" not in headers


@given(st.integers())
def test_priority_stays_within_what_engines_can_hold(lane_priority: int) -> None:
    for dialect in DIALECTS.values():
        assert abs(engine_priority(dialect, lane_priority)) <= INT64


def test_llm_d_is_told_tenant_and_lane() -> None:
    _, headers = send(chat(), "llm-d", tenant="acme", lane="async batch\r\nx: y")
    assert headers[b"x-llm-d-inference-fairness-id"] == b"acme"
    assert headers[b"x-llm-d-inference-objective"] == b"async%20batch%0D%0Ax%3A%20y"


def test_a_strict_engine_gets_only_the_standard_s_fields() -> None:
    call = chat(stream=True, priority=1)
    body, headers = send(call, "openai", cache_salt="s1", tenant="acme", lane="batch")
    assert body == {**BASE, "stream": True, "stream_options": {"include_usage": True}}
    assert headers == {}


def test_unchanged_requests_keep_the_caller_s_bytes() -> None:
    raw = b'{ "messages":[{"content":"Hi","role":"user"}], "model" : "m", "x": 1.50 }'
    for kind in ("vllm", "llamacpp", "openai", "llm-d"):
        body, _ = rewrite(
            parse("chat", raw), DIALECTS[kind], priority=20, cache_salt=None, served_model="m"
        )
        assert body is raw or body == raw


def test_an_alias_becomes_the_pool_s_model() -> None:
    assert send(chat(), served_model="real")[0]["model"] == "real"


def test_usage_is_asked_for_on_streams_only() -> None:
    assert "stream_options" not in send(chat())[0]
    assert send(chat(stream=True), "llamacpp")[0]["stream_options"] == {"include_usage": True}
    options = send(chat(stream=True))[0]["stream_options"]
    assert options == {"include_usage": True, "continuous_usage_stats": True}


def test_the_caller_s_other_stream_options_stay() -> None:
    call = chat(stream=True, stream_options={"include_usage": False, "include_obfuscation": False})
    options = send(call, "openai")[0]["stream_options"]
    assert options == {"include_usage": True, "include_obfuscation": False}


def test_the_tenant_s_salt_is_put_in_and_a_caller_s_only_divides_it() -> None:
    assert send(chat(), cache_salt="t1")[0]["cache_salt"] == "t1"
    assert send(chat(cache_salt="mine"), cache_salt="t1")[0]["cache_salt"] == "t1:mine"
    assert send(chat(cache_salt=5), cache_salt="t1")[0]["cache_salt"] == "t1"
    assert send(chat(cache_salt="mine"))[0]["cache_salt"] == "mine"
    assert "cache_salt" not in send(chat(), "llamacpp", cache_salt="t1")[0]


def test_an_output_limit_is_put_in_only_where_the_caller_gave_none() -> None:
    assert send(chat(), max_output_tokens=50)[0]["max_tokens"] == 50
    bound = send(chat(max_completion_tokens=7), max_output_tokens=50)[0]
    assert (bound["max_completion_tokens"], bound.get("max_tokens")) == (7, None)


# What a caller could name of another tenant's, or of what policy has measured and allowed.
OF_SGLANG = {
    "bootstrap_host": "169.254.1.1",
    "custom_logit_processor": "gASVCAAAAAAAAACMBHVzZXKULg==",
    "data_parallel_rank": 0,
    "input_ids": [1] * 100_000,
    "lora_path": "another's",
    "rid": "another's",
    "routed_dp_rank": 0,
    "session_id": "another's",
    "session_params": {"id": "another's"},
}


def test_fields_that_would_get_round_policy_are_dropped_where_they_could() -> None:
    """Each is in llama.cpp's own list of parameters (b11434, tools/server/server-schema.cpp)."""
    for name in ("n_predict", "n_cmpl", "id_slot"):
        assert name not in send(chat(max_tokens=5, **{name: 9999}), "llamacpp")[0]
    for kind in ("vllm", "vllm-body", "llm-d"):
        assert "kv_transfer_params" not in send(chat(kv_transfer_params={"port": 1}), kind)[0]
    for kind in ("sglang", "llm-d"):
        for name, value in OF_SGLANG.items():
            assert name not in send(chat(**{name: value}), kind)[0]
    assert send(chat(n_predict=9999))[0]["n_predict"] == 9999


def test_no_caller_chooses_its_class_of_service_at_a_hosted_engine() -> None:
    """OpenAI's and others' `priority` is served before all, for twice its price; Dynamo's hints
    hold a priority too."""
    asked = chat(service_tier="priority", nvext={"agent_hints": {"priority": 9}}, user="end-user")
    body = send(asked, "openai")[0]
    assert "service_tier" not in body
    assert "nvext" not in body
    assert body["user"] == "end-user"
    assert send(asked, "vllm")[0]["service_tier"] == "priority"  # which it only tells back


@pytest.mark.parametrize(
    "raw",
    [
        b'{"model":"cheap","messages":[{"role":"user","content":"x"}],"model":"m"}',
        b'{"mod\\u0065l":"m","messages":[{"role":"user","content":"x"}]}',
        b'{"max_tokens":1000000,"model":"m","messages":[{"role":"user","content":"x"}],'
        b'"max_tokens":1}',
    ],
)
def test_an_engine_never_reads_another_value_than_policy_read(raw: bytes) -> None:
    call = parse("chat", raw)
    body, _ = rewrite(call, DIALECTS["vllm"], priority=0, cache_salt=None, served_model="m")
    assert body.count(b'"model"') == 1
    assert b"cheap" not in body
    assert b"1000000" not in body


def test_a_call_can_be_rewritten_again_for_another_endpoint() -> None:
    call = chat(stream=True, priority=3)
    before = json.dumps(call.body)
    assert send(call, "sglang") == send(call, "sglang")
    assert json.dumps(call.body) == before


def test_nesting_that_parses_but_does_not_encode_is_a_refusal_not_a_crash() -> None:
    deepest = None
    for depth in range(200, 1200, 10):
        nested = b"[" * depth + b"]" * depth
        raw = b'{"model":"m","messages":[{"role":"user","content":"x"}],"x":' + nested + b"}"
        try:
            call = parse("chat", raw)
            rewrite(call, DIALECTS["vllm-body"], priority=0, cache_salt=None, served_model="m")
        except Exception as error:
            deepest = error
            break
    assert "nested too deeply" in str(deepest)


numbers = st.integers(-(10**40), 10**40) | st.floats(allow_nan=False, allow_infinity=False)
values = st.recursive(
    st.none() | st.booleans() | numbers | st.text(st.characters(codec="utf-8"), max_size=20),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3)
    ),
    max_leaves=8,
)
unknown_names = st.text(st.characters(codec="utf-8"), min_size=1, max_size=9).map("x_".__add__)


def spelt(value: Any) -> str:
    """JSON in which 1 and 1.0 differ, as they do to a strict engine."""
    return json.dumps(value, sort_keys=True)


@given(st.dictionaries(unknown_names, values, max_size=4), st.sampled_from(KINDS), st.booleans())
def test_unknown_fields_reach_every_engine_as_they_were(
    extra: dict[str, Any], kind: EngineKind, stream: bool
) -> None:
    sent, _ = send(chat(stream=stream, **extra), kind, cache_salt="s", served_model="other")
    assert spelt({name: sent[name] for name in extra}) == spelt(extra)
    assert sent["messages"] == BASE["messages"]
