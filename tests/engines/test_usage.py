"""Usage: the caller is told, and charged, what the engine counted."""

from __future__ import annotations

from typing import Any

import pytest

from tests.acceptance.gateway.caller import CHAT
from tests.acceptance.gateway.rig import Rig
from tests.acceptance.stack import until
from tests.engines.asking import (
    COMPLETIONS,
    LONG_TEXT,
    MESSAGES,
    RESPONSES,
    USAGE,
    body,
    counts,
    generated,
    recorded,
    said,
    told,
)
from tests.engines.noted import note
from tests.engines.process import RealEngine

ROUTES = [CHAT, COMPLETIONS, RESPONSES, MESSAGES]
TOOL = {
    "type": "function",
    "function": {
        "name": "weather",
        "parameters": {
            "type": "object",
            "properties": {"town": {"type": "string", "enum": ["Oslo", "Rome"]}},
            "required": ["town"],
            "additionalProperties": False,
        },
    },
}

FUNCTION = {"name": "weather", "arguments": '{"town": "Rome"}'}
CALLED_BEFORE: list[dict[str, Any]] = [
    *said("The weather in Rome?"),
    {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"id": "call-1", "type": "function", "function": FUNCTION}],
    },
    {"role": "tool", "tool_call_id": "call-1", "content": "Rain."},
]


@pytest.mark.parametrize("path", ROUTES)
def test_a_whole_answer_is_charged_as_its_engine_counts_it(
    served: Rig, engine: RealEngine, path: str
) -> None:
    alice = served.tenant(model="shared")
    asked = body(path, "How is the weather in Oslo?", 6)
    before = generated(engine)
    answer = alice.start(path, **asked).answer()
    assert answer.status == 200, answer.body
    until(lambda: generated(engine) == before + 6, "the engine counts six tokens")
    alone = counts(engine.post(path, model="shared", **asked)["usage"])
    prompt, _, completion = told(answer)
    assert (prompt, completion) == (alone[0], 6)
    assert alone[2] == 6
    row = served.record(answer)
    assert recorded(row) == told(answer)
    assert row["usage_source"] == "engine"


@pytest.mark.parametrize("path", ROUTES)
def test_a_stream_is_charged_as_its_engine_counts_it(
    served: Rig, engine: RealEngine, path: str
) -> None:
    alice = served.tenant(model="shared")
    options = {"stream_options": USAGE} if path in (CHAT, COMPLETIONS) else {}
    asked = body(path, "How is the weather in Rome?", 6, stream=True, **options)
    before = generated(engine)
    answer = alice.start(path, **asked).answer()
    assert answer.status == 200, answer.body
    until(lambda: generated(engine) == before + 6, "the engine counts six tokens")
    row = served.record(answer)
    assert recorded(row) == told(answer)
    assert row["completion_tokens"] == 6
    # llama.cpp calls a response completed, whatever ended it.
    ended = "stop" if (engine.kind, path) == ("llamacpp", RESPONSES) else "length"
    assert (row["usage_source"], row["finish_reason"]) == ("engine", ended)
    assert row["ttft_ms"] is not None


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
def test_a_caller_that_did_not_ask_sees_no_usage(
    served: Rig, engine: RealEngine, path: str
) -> None:
    alice = served.tenant(model="real")
    answer = alice.start(path, **body(path, "Hello", 5, stream=True)).answer()
    assert answer.done
    assert not [event for event in answer.events if event.get("usage")]
    assert all(event["choices"] for event in answer.events)
    assert served.record(answer)["completion_tokens"] == 5


def test_a_prompt_that_comes_again_is_told_as_cached(served: Rig, engine: RealEngine) -> None:
    alice = served.tenant(model="real")
    asked = body(CHAT, LONG_TEXT, 2)
    first, second = alice.chat(**asked), alice.chat(**asked)
    prompt, cached, _ = told(second)
    assert told(first)[0] == prompt
    note(engine.kind, "cached of a prompt that comes again", f"{cached} of {prompt}")
    assert prompt / 2 < cached < prompt
    assert recorded(served.record(second)) == told(second)


def test_a_tenants_cache_is_its_own(served: Rig, engine: RealEngine) -> None:
    """Where the engine salts; llama.cpp does not, and the documentation says so."""
    alice, bob = (served.tenant(model="real") for _ in range(2))
    asked = body(CHAT, "Only for this test. " + LONG_TEXT, 2)
    alice.chat(**asked)
    cached = told(bob.chat(**asked))[1]
    assert cached == 0 if engine.kind == "vllm" else cached > 0


@pytest.mark.parametrize("stream", [False, True])
def test_each_of_several_choices_is_charged(served: Rig, engine: RealEngine, stream: bool) -> None:
    alice = served.tenant(model="real")
    asked = body(CHAT, "Two answers, please.", 7, n=2, temperature=1)
    if stream:
        asked |= {"stream": True, "stream_options": USAGE}
    before = generated(engine)
    answer = alice.chat(**asked)
    assert answer.status == 200, answer.body
    until(lambda: generated(engine) == before + 14, "the engine counts both")
    assert served.record(answer)["completion_tokens"] == 14


def test_a_stream_that_is_cut_off_is_charged_at_most_what_was_made(
    served: Rig, engine: RealEngine
) -> None:
    alice = served.tenant(model="real")
    before = generated(engine)
    call = alice.start(**body(CHAT, "Go on.", engine.endless, stream=True))
    call.read_events(6)
    call.hang_up()
    engine.idle()
    (row,) = served.records(alice.tenant, 1)
    assert row["usage_source"] == "counted"
    assert 4 <= row["completion_tokens"] < engine.endless
    until(lambda: generated(engine) - before >= row["completion_tokens"], "the engine made them")


def test_a_tool_call_passes(served: Rig, engine: RealEngine) -> None:
    """llama.cpp's `required` lets a model write text first, and a small one does, unless it has
    seen how a call looks; vLLM's named function is written by its grammar alone."""
    alice = served.tenant(model="real")
    choice: Any = {"type": "function", "function": {"name": "weather"}}
    asked = {
        "messages": [*CALLED_BEFORE, *said("The weather in Oslo?")],
        "tools": [TOOL],
        "tool_choice": "required" if engine.kind == "llamacpp" else choice,
        "stop": ["\n<tool_call>"],  # llama.cpp's model would call again and again
    }
    answer = alice.chat(**asked, max_tokens=120, temperature=0)
    assert answer.status == 200, answer.body
    (call,) = answer.json["choices"][0]["message"]["tool_calls"]
    assert call["function"]["name"] == "weather"
    assert recorded(served.record(answer)) == told(answer)
    streamed = alice.chat(**asked, max_tokens=120, temperature=0, stream=True)
    deltas = [choice["delta"] for event in streamed.events for choice in event["choices"]]
    assert any(delta.get("tool_calls") for delta in deltas)
    assert served.record(streamed)["completion_tokens"] == told(answer)[2]
