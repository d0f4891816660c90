"""OpenTelemetry: what a collector receives of calls, over a real socket; and what it never does."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlane.database_faults import Sparing
from fairlane.environment import OTEL_LOGGERS
from fairlane.telemetry import Telemetry
from gateway.otel.spans import named_by
from gateway.otel.start import Sender
from gateway.service import Gateway
from gateway.wire.routes import Kind
from tests.unit.gateway.cast import SECRET, snapshot
from tests.unit.gateway.collector import Collector, collector
from tests.unit.gateway.world import World, full_stream, streamed, whole

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
UNSAMPLED = PARENT[:-2] + "00"
TRACE, CALLER = PARENT.split("-")[1:3]
SERVER, CLIENT = 2, 3  # kinds of spans in the protocol
ENVIRONMENT = ("ENDPOINT", "HEADERS", "TRACES_ENDPOINT", "METRICS_ENDPOINT")


@contextmanager
def watched(world: World, url: str, **wanted: bool) -> Iterator[Sender]:
    """A world whose calls are told to a collector; all is sent once the block is left."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ENVIRONMENT:
            patch.delenv(f"OTEL_EXPORTER_OTLP_{name}", raising=False)
        patch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", url)
        patch.setenv("NO_PROXY", "127.0.0.1")
        sender = Sender("gateway-1", **{"traces": True, "metrics": True, **wanted})
    world.calls.telemetry = sender.telemetry
    try:
        yield sender
    finally:
        sender.stop()


async def told_of(world: World, *replies: Any, **call: Any) -> Collector:
    """What arrives of one call."""
    with collector() as receiver:
        with watched(world, receiver.url):
            await world.ask(*replies, **call)
        return receiver


async def test_a_call_is_one_server_span_with_its_admission_queue_and_engine_below() -> None:
    world = World()
    receiver = await told_of(world, streamed(*full_stream()), stream=True)
    root = receiver.named("POST /v1/chat/completions")
    assert (root.kind, root.parent, root.failed) == (SERVER, "", False)
    assert root.about["http.response.status_code"] == 200
    assert root.about["fairlane.request_id"] == world.record.request_id
    assert root.about["fairlane.tenant"] == "alice"
    assert root.about["fairlane.lane"] == "standard"
    engine = receiver.named("chat chat")
    assert engine.kind == CLIENT
    assert engine.about["gen_ai.operation.name"] == "chat"
    assert engine.about["gen_ai.provider.name"] == "vllm"
    assert engine.about["gen_ai.request.model"] == "chat"
    assert engine.about["gen_ai.usage.input_tokens"] == 12
    assert engine.about["gen_ai.usage.output_tokens"] == 2
    assert engine.about["gen_ai.response.finish_reasons"] == ["stop"]
    assert (engine.about["server.address"], engine.about["server.port"]) == ("engine-a", 80)
    assert engine.events == ["first token"]
    for name in ("admission", "queue", "chat chat"):
        assert receiver.named(name).parent == root.id
    assert len(receiver.spans) == 4
    assert receiver.service["service.name"] == "fairlane"
    assert receiver.service["service.instance.id"] == "gateway-1"


async def test_the_engine_hears_of_the_span_that_asks_it() -> None:
    world = World()
    asked = {"traceparent": PARENT, "tracestate": "vendor=1"}
    receiver = await told_of(world, headers=asked)
    root, engine = receiver.named("POST /v1/chat/completions"), receiver.named("chat chat")
    assert (root.trace, root.parent) == (TRACE, CALLER)
    [request] = world.asked
    assert request.headers.get_list("traceparent") == [f"00-{TRACE}-{engine.id}-01"]
    assert request.headers.get_list("tracestate") == ["vendor=1"]


async def test_what_its_caller_leaves_out_is_not_sent_but_passed_on() -> None:
    world = World()
    receiver = await told_of(world, headers={"traceparent": UNSAMPLED})
    assert receiver.spans == []
    [request] = world.asked
    version, trace, _, flags = request.headers["traceparent"].split("-")
    assert (version, trace, flags) == ("00", TRACE, "00")


async def test_a_caller_that_names_no_trace_begins_one() -> None:
    world = World()
    receiver = await told_of(world)
    trace = receiver.named("queue").trace
    assert world.asked[0].headers["traceparent"].split("-")[1] == trace


async def test_an_engine_that_failed_has_a_span_of_its_own() -> None:
    receiver = await told_of(World(), httpx.Response(500), whole())
    engines = [span for span in receiver.spans if span.kind == CLIENT]
    assert [span.failed for span in engines] == [True, False]
    assert engines[0].about["error.type"] == "engine_error"
    assert {span.about["server.address"] for span in engines} == {"engine-a", "engine-b"}
    assert not receiver.named("POST /v1/chat/completions").failed


@pytest.mark.parametrize(
    ("call", "status", "failed"),
    [
        ({"key": "who-knows"}, 401, False),
        ({"body": b"[]"}, 400, False),
        ({"model": "gpt-9"}, 404, False),
        ({"replies": [httpx.ReadTimeout("late")]}, 504, True),
    ],
    ids=["no key", "malformed", "no such model", "engine too slow"],
)
async def test_a_call_that_came_to_nothing_is_told_with_its_code(
    call: dict[str, Any], status: int, failed: bool
) -> None:
    replies = call.pop("replies", [])
    receiver = await told_of(World(), *replies, **call)
    root = receiver.named("POST /v1/chat/completions")
    assert root.about["http.response.status_code"] == status
    assert root.about["error.type"] == root.about["fairlane.outcome"]
    assert root.failed is failed


async def test_genai_metrics_tell_durations_first_tokens_and_usage() -> None:
    world = World()
    with collector() as receiver, watched(world, receiver.url):
        await world.ask(streamed(*full_stream()), stream=True)
        await world.ask(body=b"[]")
    labels = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "vllm",
        "gen_ai.request.model": "chat",
        "fairlane.tenant": "alice",
        "fairlane.lane": "standard",
    }
    durations = receiver.points("gen_ai.server.request.duration")
    assert [count for about, _, count in durations if about == labels] == [1]
    [refused] = [about for about, _, _ in durations if about != labels]
    assert refused["error.type"] == "invalid_request"
    assert refused["gen_ai.request.model"] == "unknown"
    assert [about for about, _, _ in receiver.points("gen_ai.server.time_to_first_token")] == [
        labels
    ]
    assert len(receiver.points("gen_ai.server.time_per_output_token")) == 1
    assert len(receiver.points("gen_ai.client.operation.duration")) == 1
    tokens = receiver.points("gen_ai.client.token.usage")
    assert {about["gen_ai.token.type"]: total for about, total, _ in tokens} == {
        "input": 12,
        "output": 2,
    }


async def test_either_signal_can_be_left_out() -> None:
    for wanted, path in (
        ({"metrics": False}, "/v1/traces"),
        ({"traces": False}, "/v1/metrics"),
    ):
        world = World()
        with collector() as receiver:
            with watched(world, receiver.url, **wanted):
                await world.ask(headers={"traceparent": PARENT})
            assert {where for where, _ in receiver.received} == {path}
        assert world.asked[0].headers["traceparent"].split("-")[1] == TRACE


KINDS: list[tuple[Kind, dict[str, Any]]] = [
    ("chat", {"messages": [{"role": "user", "content": "MARKED-PROMPT"}]}),
    ("completions", {"prompt": "MARKED-PROMPT"}),
    ("responses", {"input": "MARKED-PROMPT", "instructions": "MARKED-PROMPT"}),
    ("messages", {"messages": [{"role": "user", "content": "MARKED-PROMPT"}], "max_tokens": 5}),
    ("embeddings", {"input": "MARKED-PROMPT"}),
    ("rerank", {"query": "MARKED-PROMPT", "documents": ["MARKED-PROMPT"]}),
    ("score", {"text_1": "MARKED-PROMPT", "text_2": "MARKED-PROMPT"}),
    ("tokenize", {"prompt": "MARKED-PROMPT"}),
]


async def test_no_prompt_answer_or_key_reaches_a_collector() -> None:
    world = World()
    answer = {"choices": [{"message": {"content": "MARKED-ANSWER"}, "finish_reason": "MARKED"}]}
    refusal = {"error": {"message": "MARKED-ANSWER: MARKED-PROMPT is too long", "type": "x"}}
    with collector() as receiver, watched(world, receiver.url):
        for kind, fields in KINDS:
            for reply in (httpx.Response(200, json=answer), httpx.Response(400, json=refusal)):
                await world.ask(reply, kind=kind, user="MARKED-PROMPT", **fields)
        await world.ask(key="MARKED-KEY")
        await world.ask(model="MARKED-PROMPT")
        await world.ask(headers={"x-fairlane-lane": "MARKED-PROMPT"})
        await world.ask(httpx.ReadError("MARKED-ANSWER"), httpx.ReadError("MARKED-ANSWER"))
    sent = b"".join(receiver.raw)
    assert len(receiver.spans) > 60
    assert b"MARKED" not in sent
    assert SECRET["alice"] not in sent


async def test_a_collector_that_is_away_costs_no_call_and_no_stop() -> None:
    world = World(snapshot(alice={"limits": {"max_running": 1, "max_queued": 0}}))
    with collector() as gone:
        pass
    with watched(world, gone.url):
        for _ in range(20):
            assert (await world.ask()).status == 200
    assert world.is_empty


async def test_a_collector_that_takes_all_and_answers_nothing_costs_no_call() -> None:
    world = World()
    with collector(answers=False) as silent, watched(world, silent.url) as sender:
        for _ in range(20):
            assert (await world.ask()).status == 200
        silent.goes_on.set()
        sender.stop()
    assert world.is_empty


@pytest.mark.parametrize("name", OTEL_LOGGERS)
def test_what_the_sdk_says_again_and_again_is_logged_sparingly(name: str) -> None:
    logger = import_module(name)._logger
    assert any(isinstance(each, Sparing) for each in logger.filters)


@given(
    st.lists(
        st.tuples(st.sampled_from([b"traceparent", b"tracestate", b"baggage"]), st.binary()),
        max_size=5,
    )
)
def test_no_header_of_a_caller_breaks_the_naming_of_a_trace(
    headers: list[tuple[bytes, bytes]],
) -> None:
    named_by(headers)


async def test_a_gateway_watches_its_calls_only_where_the_settings_say_so(
    settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    gateway = Gateway()
    gateway.calls = World().calls
    settings.OTEL = Telemetry()
    assert gateway._start_telemetry() is None
    assert gateway.calls.telemetry is None
    with collector() as receiver:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.url)
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        settings.OTEL = Telemetry(traces=True)
        sender = gateway._start_telemetry()
        assert sender is not None
        assert gateway.calls.telemetry is sender.telemetry
        sender.telemetry.begin("chat", []).placed()
        sender.stop()
        assert {path for path, _ in receiver.received} == {"/v1/traces"}
