"""What `serve` sends to an OpenTelemetry collector that its environment names."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.gateway.caller import Answer, Caller
from tests.acceptance.gateway.rig import Rig, policy, prepare
from tests.acceptance.stack import Stack, until
from tests.unit.gateway.collector import Collector, Span, collector

TRACE, CALLER = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
PROMPT = "MARKED-PROMPT says nothing"
NAMES = {"POST /v1/chat/completions", "admission", "queue", "chat chat"}
TOKENS = "gen_ai.client.token.usage"


@pytest.fixture
def receiver() -> Iterator[Collector]:
    with collector() as running:
        yield running


@pytest.fixture
def told(rig: Rig, receiver: Collector, tmp_path: Path) -> Iterator[Rig]:
    """A product of its own that tells the receiver of its calls, before the other's engine."""
    settings = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": receiver.url,
        "OTEL_SERVICE_NAME": "our-gateway",
        "OTEL_BSP_SCHEDULE_DELAY": "100",  # ms
        "OTEL_METRIC_EXPORT_INTERVAL": "200",
        "NO_PROXY": "127.0.0.1",
    }
    made = Stack(tmp_path, [rig.engine.url], settings=settings)
    token = prepare(made, policy(made.engines))
    made.start()
    running = Rig(made, token, rig.engines)
    try:
        yield running
    finally:
        running.admin.close()
        made.stop()


def called(alice: Caller, **more: Any) -> Answer:
    trace = {"Traceparent": f"00-{TRACE}-{CALLER}-01"}
    said = [{"role": "user", "content": PROMPT}]
    answer = alice.chat(trace, messages=said, max_tokens=20, **more)
    assert answer.status == 200
    return answer


def usage(answer: Answer) -> dict[str, Any]:
    last = answer.events[-1] if answer.streamed else answer.json
    found: dict[str, Any] = last["usage"]
    return found


def words(answer: Answer) -> str:
    """What the engine wrote."""
    if not answer.streamed:
        return str(answer.json["choices"][0]["message"]["content"])
    pieces = [choice["delta"] for event in answer.events for choice in event["choices"]]
    return "".join(piece.get("content") or "" for piece in pieces)


def test_a_collector_is_told_of_calls_in_their_callers_trace_and_of_no_word_in_them(
    told: Rig, receiver: Collector
) -> None:
    alice = told.tenant()
    whole = called(alice)
    stream = called(alice, stream=True, stream_options={"include_usage": True})
    until(lambda: len(receiver.spans) >= 8, "the spans of both calls")
    for answer in (whole, stream):
        told_of(told, receiver, alice, answer)
    assert receiver.service["service.name"] == "our-gateway"
    figures(receiver, alice, whole, stream)
    sent = b"".join(receiver.raw)
    for secret in ("MARKED", alice.key, words(whole), words(stream)):
        assert secret
        assert secret.encode() not in sent


def told_of(told: Rig, receiver: Collector, alice: Caller, answer: Answer) -> None:
    """One span of the call in its caller's trace, and below it what it passed."""
    [root] = [s for s in receiver.spans if s.about.get("fairlane.request_id") == answer.id]
    assert (root.name, root.trace, root.parent) == ("POST /v1/chat/completions", TRACE, CALLER)
    below = {span.name: span for span in receiver.spans if span.parent == root.id}
    assert {root.name, *below} == NAMES
    assert (root.about["fairlane.tenant"], root.about["fairlane.lane"]) == (alice.tenant, "normal")
    assert root.about["http.response.status_code"] == 200
    asked(told, below["chat chat"], answer)


def asked(told: Rig, span: Span, answer: Answer) -> None:
    """The engine's part, by the names of the GenAI conventions; the engine can go on from it."""
    tokens = usage(answer)
    assert span.trace == TRACE
    assert span.about["gen_ai.operation.name"] == "chat"
    assert span.about["gen_ai.provider.name"] == "vllm"
    assert span.about["gen_ai.request.model"] == "chat"
    assert span.about["gen_ai.usage.input_tokens"] == tokens["prompt_tokens"]
    assert span.about["gen_ai.usage.output_tokens"] == tokens["completion_tokens"]
    assert span.events == (["first token"] if answer.streamed else [])
    seen = told.engine.saw(answer.id)
    assert seen is not None
    assert seen["headers"]["traceparent"] == f"00-{TRACE}-{span.id}-01"


def figures(receiver: Collector, alice: Caller, *answers: Answer) -> None:
    """GenAI metrics by tenant and lane, each call counted once. They are sent again and again, and
    one call's may be in two of those."""
    lane = {"fairlane.tenant": alice.tenant, "fairlane.lane": "normal"}
    durations = {
        "gen_ai.server.request.duration": 2,
        "gen_ai.server.time_to_first_token": 1,
        "fairlane.queue.duration": 2,
    }
    for name, count in durations.items():
        until(lambda: latest(receiver, name, lane)[1] == count, f"{count} of {name}")  # noqa: B023
    for kind, field in (("input", "prompt_tokens"), ("output", "completion_tokens")):
        labels = {"fairlane.tenant": alice.tenant, "gen_ai.token.type": kind}
        due = sum(usage(answer)[field] for answer in answers), 2
        until(lambda: latest(receiver, TOKENS, labels) == due, f"{due} {kind} tokens")  # noqa: B023


def latest(receiver: Collector, name: str, labels: dict[str, Any]) -> tuple[float, int]:
    """A histogram's sum and count as they were sent last."""
    points = [point for point in receiver.points(name) if labels.items() <= point[0].items()]
    return points[-1][1:] if points else (0.0, 0)
