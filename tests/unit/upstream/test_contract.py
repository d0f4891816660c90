"""One contract for every kind of engine, each played by a stub after engines.md (sections 1 and 2):
what it is sent, how it tells usage, that it is full, that a prompt is too long, how it counts."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, get_args

import httpx
import pytest

from gateway.dialects import DIALECTS
from gateway.upstream.counting import question
from gateway.upstream.facts import EngineFacts
from gateway.wire.request import parse
from tenants.core.snapshot import EngineKind
from tests.over_httpx import client_over
from tests.unit.gateway.cast import A, snapshot
from tests.unit.gateway.world import World, streamed, whole
from tests.unit.wire.frames import DONE, counts, event, finish, role, token, usage

KINDS = get_args(EngineKind)
STANDARD = {"model", "messages", "stream", "stream_options", "max_tokens", "n"}
LANE_PRIORITY = 7  # of the lane `standard` in tests.unit.gateway.cast


def running(tokens: int) -> dict[str, Any]:
    return {"usage": counts(12, tokens)}


# vLLM and SGLang, asked for continuous usage: a count on every frame, and one more at the end.
RUNNING = (role(**running(0)), token("Hi", **running(1)), token(" you", **running(3)),
           finish(**running(3)), usage(12, 3), DONE)  # fmt: skip
AT_THE_END = (role(), token("Hi"), token(" you"), finish(), usage(12, 3), DONE)
VLLM_FULL = (503, {"error": {"message": "busy", "type": "Service Unavailable", "code": 503}})
VLLM_LONG = (400, {"error": {"message": "too long", "type": "BadRequestError",
                             "param": "input_tokens", "code": 400}})  # fmt: skip


@dataclass(frozen=True)
class Engine:
    """`takes`: fields beyond the standard's that it knows, with the value that is due; it refuses
    all others with 400, as strict ones do (case R37)."""

    takes: dict[str, Any] = field(default_factory=dict)
    headers: dict[str, str] = field(default_factory=dict)
    options: set[str] = field(default_factory=lambda: {"include_usage"})  # stream_options
    frames: tuple[bytes, ...] = AT_THE_END
    cut: str = "counted"  # usage source of a stream that breaks off after two tokens' frames
    full: tuple[int, Any] = VLLM_FULL
    long: tuple[int, Any] = VLLM_LONG
    count: tuple[str, Any] = ("/tokenize", {"count": 22, "max_model_len": 2048, "tokens": []})
    about: dict[str, Any] = field(default_factory=dict)
    version: str = ""
    by_priority: bool | None = None


SALT = "a salt of the tenant"
BOTH = {"include_usage", "continuous_usage_stats"}
DEV_MODE = {"vllm_config": {"scheduler_config": {"policy": "fcfs"}}}
SGLANG_FLAGS = {"version": "0.5.23", "enable_priority_scheduling": True}
ENGINES: dict[EngineKind, Engine] = {
    "vllm": Engine(
        takes={"cache_salt": SALT},
        headers={"x-vllm-priority": "7"},
        options=BOTH,
        frames=RUNNING,
        about={"/version": {"version": "0.32.0"}, "/server_info": DEV_MODE},
        version="0.32.0",
        by_priority=False,
    ),
    "vllm-body": Engine(
        takes={"priority": LANE_PRIORITY, "cache_salt": SALT},
        options=BOTH,
        frames=RUNNING,
        about={"/version": {"version": "0.9.1"}},
        version="0.9.1",
    ),
    "sglang": Engine(
        takes={"priority": -LANE_PRIORITY, "cache_salt": SALT},  # higher is sooner there
        options=BOTH,
        frames=RUNNING,
        full=(503, {"object": "error", "message": "The queue is full", "code": 503}),
        long=(400, {"object": "error", "message": "longer than the model's context length",
                    "type": "BadRequestError", "param": None, "code": 400}),
        about={"/server_info": SGLANG_FLAGS},
        version="0.5.23",
        by_priority=True,
    ),
    "llamacpp": Engine(
        # Its queue has no end; this is how it answers while it loads.
        full=(503, {"error": {"message": "Loading model", "type": "unavailable_error",
                              "code": 503}}),
        long=(400, {"error": {"message": "exceeds the available context size", "code": 400,
                              "type": "exceed_context_size_error", "n_ctx": 4096}}),
        count=("/v1/chat/completions/input_tokens", {"input_tokens": 22}),
        about={"/props": {"build_info": "b11434-7a1c3f0", "total_slots": 2}},
        version="b11434-7a1c3f0",
    ),
    "llm-d": Engine(
        takes={"cache_salt": SALT},
        headers={
            "x-llm-d-inference-fairness-id": "alice",
            "x-llm-d-inference-objective": "standard",
            "x-gateway-inference-fairness-id": "alice",
            "x-gateway-inference-objective": "standard",
        },
        options=BOTH,
        frames=RUNNING,
        full=(429, "too many requests"),  # the router's own words are plain text
    ),
    "openai": Engine(
        full=(429, {"error": "Model is overloaded", "error_type": "overloaded"}),  # TGI's form
        long=(400, {"error": {"message": "maximum context length is 8192", "param": "messages",
                              "type": "invalid_request_error",
                              "code": "context_length_exceeded"}}),
    ),
}  # fmt: skip


def world(kind: EngineKind, **more: Any) -> World:
    return World(snapshot(pool={"engine": kind, "endpoints": [{"url": A}], **more}))


def answer(status: int, body: Any) -> httpx.Response:
    text = body if isinstance(body, str) else json.dumps(body)
    return httpx.Response(status, content=text.encode())


def faults(kind: EngineKind, request: httpx.Request) -> list[str]:
    """What this engine would not take, or should have been sent and was not."""
    engine, body = ENGINES[kind], json.loads(request.content)
    found = [f"unknown field {name}" for name in body.keys() - STANDARD - engine.takes.keys()]
    for name, due in engine.takes.items():
        if body.get(name) != due and (due != SALT or not body.get(name)):
            found.append(f"{name} is {body.get(name)!r}")
    if body.get("stream") and {k for k, v in body["stream_options"].items() if v} != engine.options:
        found.append(f"stream_options is {body['stream_options']}")
    ordering = {n: v for n, v in request.headers.items() if n.startswith("x-") and n[-2:] != "id"}
    ordering |= {n: v for n, v in request.headers.items() if n.endswith("fairness-id")}
    if ordering != engine.headers:
        found.append(f"headers are {ordering}")
    return found


def test_every_kind_is_played() -> None:
    assert set(ENGINES) == set(KINDS) == set(DIALECTS)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("kind", KINDS)
async def test_it_gets_what_it_takes_in_its_own_form_and_nothing_else(
    kind: EngineKind, stream: bool
) -> None:
    """Whatever the caller says of priorities, by field or by header."""
    here = world(kind)
    reply = streamed(*ENGINES[kind].frames) if stream else whole()
    theirs = {"x-vllm-priority": "-9", "x-llm-d-inference-fairness-id": "bob"}
    caller = await here.ask(reply, stream=stream, priority=-5, headers=theirs)
    assert caller.status == 200
    [request] = here.asked
    assert faults(kind, request) == []


@pytest.mark.parametrize("kind", KINDS)
async def test_its_usage_is_what_is_billed_and_a_caller_that_did_not_ask_sees_none(
    kind: EngineKind,
) -> None:
    here = world(kind)
    caller = await here.ask(streamed(*ENGINES[kind].frames), stream=True)
    record = here.journal.records[-1]
    assert (record.prompt_tokens, record.completion_tokens) == (12, 3)
    assert record.usage_source == "engine"
    assert b"usage" not in caller.body
    cached = {"prompt_tokens_details": {"cached_tokens": 8}}
    await here.ask(httpx.Response(200, json={"choices": [], "usage": {**counts(12, 3), **cached}}))
    record = here.journal.records[-1]
    assert (record.prompt_tokens, record.cached_tokens, record.completion_tokens) == (12, 8, 3)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_stream_that_it_breaks_off_is_billed_by_what_is_known(kind: EngineKind) -> None:
    """Its running usage where it tells one, which is exact; else the frames that came."""
    here = world(kind)
    await here.ask(streamed(*ENGINES[kind].frames[:3], then="break"), stream=True)
    told = DIALECTS[kind].running_usage
    record = here.record
    assert record.usage_source == "counted"
    assert record.completion_tokens == (3 if told else 2)
    assert not told or record.prompt_tokens == 12
    assert here.is_empty


@pytest.mark.parametrize("kind", KINDS)
async def test_full_is_told_as_full_with_the_time_to_wait_and_whose_word_it_is(
    kind: EngineKind,
) -> None:
    caller = await world(kind).ask(answer(*ENGINES[kind].full))
    assert (caller.status, caller.error["code"]) == (503, "overloaded")
    assert caller.headers["x-fairlane-source"] == "engine"
    assert int(caller.headers["retry-after"]) >= 1


@pytest.mark.parametrize("kind", KINDS)
async def test_a_prompt_past_its_context_is_the_callers_to_shorten(kind: EngineKind) -> None:
    caller = await world(kind).ask(answer(*ENGINES[kind].long))
    assert (caller.status, caller.error["code"]) == (400, "context_length_exceeded")


@pytest.mark.parametrize("kind", KINDS)
async def test_an_error_as_its_stream_begins_is_an_error_of_the_call(kind: EngineKind) -> None:
    """SGLang evicts a request that it had accepted; others fail the same way (engines.md 1.2)."""
    said = {"error": {"message": "aborted by a higher priority request", "code": 503}}
    caller = await world(kind).ask(streamed(event(said)), stream=True)
    assert (caller.status, caller.error["code"]) == (503, "overloaded")


@pytest.mark.parametrize("kind", KINDS)
async def test_it_is_asked_for_a_count_in_its_own_way(kind: EngineKind) -> None:
    path, said = ENGINES[kind].count
    limits = {"limits": {"max_input_tokens": 22}}
    policy = snapshot(
        alice=limits,
        pool={"engine": kind, "endpoints": [{"url": A}], "tokenizer": {"kind": "engine"}},
    )
    here = World(policy)
    await here.ask(answer(200, said), whole())
    assert here.asked[0].url.path == path
    assert here.journal.entries[0].prompt_tokens == 22


async def test_llamacpp_counts_plain_text_where_it_knows_it_as_content() -> None:
    call = parse("completions", b'{"model": "chat", "prompt": "Once upon"}')
    asked = question("chat", call, DIALECTS["llamacpp"])
    assert asked.path == "/tokenize"
    assert asked.body == {"content": "Once upon", "add_special": True}
    assert asked.told == "tokens"


@pytest.mark.parametrize("kind", KINDS)
async def test_what_it_tells_of_itself_is_read_where_it_tells_it(kind: EngineKind) -> None:
    engine = ENGINES[kind]
    model = {"id": "chat", "root": "org/weights", "max_model_len": 2048, "created": 1}
    asked: list[str] = []

    def told(request: httpx.Request) -> httpx.Response:
        asked.append(request.url.path)
        if request.url.path == "/v1/models":
            return httpx.Response(200, json={"data": [model]})
        said = engine.about.get(request.url.path)
        return httpx.Response(404) if said is None else httpx.Response(200, json=said)

    policy = snapshot(pool={"engine": kind, "endpoints": [{"url": A}]})
    facts = EngineFacts(client_over(httpx.MockTransport(told)))
    await facts.learn(policy.pools["chat"], [])
    known = facts.of("chat", A)
    assert (known.version, known.by_priority) == (engine.version, engine.by_priority)
    assert facts.context_tokens("chat") == 2048
    model |= {"created": 2}
    await facts.learn(policy.pools["chat"], [])
    assert facts.of("chat", A).fingerprint == known.fingerprint != ""
    model |= {"root": "org/other"}
    await facts.learn(policy.pools["chat"], [])
    assert facts.of("chat", A).fingerprint != known.fingerprint


@pytest.mark.parametrize(
    "word", ["\ud800", "1\x00", "1\u202e", 10**400, [[[]]], None, {"a": "\udfff"}]
)
async def test_what_it_tells_of_itself_may_be_anything(word: Any) -> None:
    """It goes into the live state, which is JSON in a database, and onto a page."""
    model = {"id": "chat", "root": word, "meta": word, "max_model_len": word, "owned_by": word}

    def told(request: httpx.Request) -> httpx.Response:
        about = {"version": word, "vllm_config": {"scheduler_config": {"policy": word}}}
        said = {"data": [model]} if request.url.path == "/v1/models" else about
        return httpx.Response(200, content=json.dumps(said).encode())

    facts = EngineFacts(client_over(httpx.MockTransport(told)))
    await facts.learn(snapshot(pool={"endpoints": [{"url": A}]}).pools["chat"], [])
    known = facts.of("chat", A)
    assert known.version in ("", "1")
    assert (known.fingerprint + known.version).isascii()


async def test_llamacpp_tells_its_slots_context_and_lists_its_one_model_under_any_name() -> None:
    """As its source writes it (b11434, tools/server/server-context.cpp)."""
    model = {"id": "gemma.gguf", "aliases": [], "meta": {"n_ctx": 8192, "n_ctx_train": 32768}}
    props = {"build_info": "b11434-7a1c3f0"}

    def told(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, json=props if "props" in request.url.path else {"data": [model]})

    policy = snapshot(pool={"engine": "llamacpp", "endpoints": [{"url": A}]})
    facts = EngineFacts(client_over(httpx.MockTransport(told)))
    await facts.learn(policy.pools["chat"], [])
    assert facts.context_tokens("chat") == 8192
    known = facts.of("chat", A).fingerprint
    for name, value in (("id", "first"), ("aliases", ["chat"])):
        model[name] = value
        await facts.learn(policy.pools["chat"], [])
        assert facts.of("chat", A).fingerprint == known
    model["meta"] = {"n_ctx": 4096}
    await facts.learn(policy.pools["chat"], [])
    assert facts.of("chat", A).fingerprint != known


@pytest.mark.parametrize(
    ("kind", "ignored"),
    [("llamacpp", True), ("openai", True), ("llm-d", False), ("vllm", False), ("sglang", False)],
)
def test_a_kind_without_priorities_is_known_to_ignore_them(kind: EngineKind, ignored: bool) -> None:
    assert DIALECTS[kind].ignores_priority is ignored


async def test_sglang_that_sorts_the_other_way_does_not_serve_by_priority() -> None:
    flags = {**SGLANG_FLAGS, "schedule_low_priority_values_first": True}

    def told(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, json=flags if "info" in request.url.path else {"data": []})

    policy = snapshot(pool={"engine": "sglang", "endpoints": [{"url": A}]})
    facts = EngineFacts(client_over(httpx.MockTransport(told)))
    await facts.learn(policy.pools["chat"], [])
    assert facts.of("chat", A).by_priority is False
