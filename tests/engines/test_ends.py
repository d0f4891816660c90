"""Hanging up, refusals, and an engine that dies."""

from __future__ import annotations

import pytest

from tests.acceptance.gateway.caller import CHAT
from tests.acceptance.gateway.rig import Rig
from tests.acceptance.stack import until
from tests.engines.asking import LONG_TEXT, body, endpoint, endpoints
from tests.engines.noted import timed
from tests.engines.process import RealEngine

ENDED = {
    "vllm": ("vllm:request_success_total", {"finished_reason": "length"}),
    "llamacpp": ("llamacpp:tokens_predicted_total", {}),
}


@pytest.mark.parametrize("stream", [True, False])
def test_a_hang_up_ends_the_work_at_once(served: Rig, engine: RealEngine, stream: bool) -> None:
    alice = served.tenant(model="real")
    call = alice.start(**body(CHAT, "Go on.", engine.endless, stream=stream))
    until(lambda: engine.running() == 1, "the engine works")
    if stream:
        call.read_events(3)
    name, labels = ENDED[engine.kind]
    before = engine.metric(name, **labels)
    call.hang_up()
    with timed(engine.kind, f"hang-up until it is idle, {'stream' if stream else 'whole answer'}"):
        if stream or engine.kind == "vllm":
            engine.idle()
        else:
            engine.idle_unasked()
    (row,) = served.records(alice.tenant, 1)
    assert (row["status"], row["finish_reason"]) == (499, "cancelled")
    assert engine.metric(name, **labels) - before < (1 if engine.kind == "vllm" else engine.endless)


def test_what_is_too_long_for_the_engine_is_the_callers_fault(
    served: Rig, engine: RealEngine
) -> None:
    alice = served.tenant(model="real")
    answer = alice.chat(**body(CHAT, LONG_TEXT * 200, 4))
    assert (answer.status, answer.code) == (400, "context_length_exceeded"), answer.body
    assert answer.headers["x-fairlane-source"] == "engine"


def test_a_field_of_the_wrong_kind_is_the_callers_fault(served: Rig, engine: RealEngine) -> None:
    alice = served.tenant(model="real")
    answer = alice.chat(**body(CHAT, "Hello", 4, temperature="warm"))
    assert (answer.status, answer.code) == (400, "invalid_request"), answer.body


def test_a_route_that_the_engine_lacks_is_named(served: Rig, engine: RealEngine) -> None:
    alice = served.tenant(model="real")
    answer = alice.start("/v1/embeddings", input="Hello").answer()
    assert (answer.status, answer.code) == (502, "engine_error"), answer.body
    assert "/v1/embeddings" in answer.message
    assert answer.headers["x-should-retry"] == "false"


def test_an_engine_that_dies_ends_its_streams_and_is_used_again_when_it_is_back(
    served: Rig, engine: RealEngine
) -> None:
    alice = served.tenant(model="real")
    call = alice.start(**body(CHAT, "Go on.", engine.endless, stream=True))
    call.read_events(3)
    engine.kill()
    cut = call.answer()
    assert cut.code == "engine_error"
    assert not cut.done
    until(lambda: alice.chat().status == 503, "the endpoint is out")
    assert alice.chat().code == "no_endpoint"
    until(lambda: endpoint(served, "real")["available"] is False, "the console knows")
    engine.launch()
    assert alice.chat().status == 503, "it loads"
    engine.ready()
    met: set[int] = set()

    def answers() -> bool:
        met.add(alice.chat(**body(CHAT, "Are you back?", 2)).status)
        return 200 in met

    until(answers, "it answers again")
    assert met <= {200, 503}
    until(lambda: all(each["available"] for each in endpoints(served)), "each pool uses it again")
