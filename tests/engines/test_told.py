"""What an engine tells of itself: counts of prompts, load, version; and what is learnt from it."""

from __future__ import annotations

import pytest

from tests.acceptance.gateway.caller import CHAT
from tests.acceptance.gateway.rig import Rig
from tests.acceptance.stack import until
from tests.engines.asking import COMPLETIONS, LONG_TEXT, body, endpoint, told
from tests.engines.noted import note
from tests.engines.process import SLOTS, RealEngine

TEXT = "How many tokens is this? " + LONG_TEXT[:200]


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
def test_tokenize_counts_what_a_call_is_charged(served: Rig, engine: RealEngine, path: str) -> None:
    """In vLLM's form before each engine: `messages` as a chat, `prompt` as a completion."""
    alice = served.tenant(model="real")
    call = body(path, TEXT, 1)
    field = "messages" if path == CHAT else "prompt"
    answer = alice.start("/tokenize", **{field: call[field]}).answer()
    assert answer.status == 200, answer.body
    charged = told(alice.start(path, **call).answer())[0]
    assert answer.json["count"] == len(answer.json["tokens"]) == charged
    assert answer.json["max_model_len"] > charged
    assert served.record(answer)["usage_source"] == "engine"


def test_tokenize_in_the_engines_own_form_passes_as_it_is(served: Rig, engine: RealEngine) -> None:
    alice = served.tenant(model="real")
    field = "prompt" if engine.kind == "vllm" else "content"
    answer = alice.start("/tokenize", **{field: TEXT}).answer()
    assert answer.status == 200, answer.body
    assert answer.json == engine.post("/tokenize", model="real", **{field: TEXT})


def test_a_pool_that_lets_its_engine_count_knows_the_prompt_exactly(
    served: Rig, engine: RealEngine
) -> None:
    alice = served.tenant(model="counted")
    prompt = told(alice.chat(**body(CHAT, TEXT, 1)))[0]
    for tokens, status in ((prompt, 200), (prompt - 1, 400)):
        bounded = served.tenant(model="counted", limits={"max_input_tokens": tokens})
        assert bounded.chat(**body(CHAT, TEXT, 1)).status == status, tokens
    pool = served.live()["pools"]["counted"]["tokenizer"]
    assert (pool["kind"], pool["fault"]) == ("engine", "")


def test_an_estimate_learns_the_engines_way_to_count(served: Rig, engine: RealEngine) -> None:
    alice = served.tenant(model="plain")
    for number in range(12):
        answer = alice.chat(**body(CHAT, f"{number}: {LONG_TEXT[: 200 + 30 * number]}", 1))
    row = served.record(answer)
    note(
        engine.kind,
        "estimate / count after twelve calls",
        f"{row['estimated_cost'] / row['cost']:.2f}",
    )
    assert abs(row["estimated_cost"] - row["cost"]) / row["cost"] < 0.25, row


def test_the_console_knows_version_and_load(served: Rig, engine: RealEngine) -> None:
    alice = served.tenant(model="real")
    calls = [
        alice.start(**body(CHAT, "Go on.", engine.endless, stream=True)) for _ in range(SLOTS + 3)
    ]
    until(lambda: engine.waiting() == 3, "some wait in the engine")

    def seen() -> bool:
        load = endpoint(served, "real").get("engine") or {}
        return bool(load.get("running") == SLOTS and load.get("waiting") == 3)

    until(seen, "the sample tells the engine's load")
    now = endpoint(served, "real")
    assert now["version"]
    assert not now["simulated"]
    assert now["fingerprint"]
    assert ("memory" in now["engine"]) is (engine.kind == "vllm")
    for call in calls:
        call.hang_up()
    engine.idle()
    until(lambda: (endpoint(served, "real").get("engine") or {}).get("running") == 0, "it is idle")


def test_a_capacity_that_is_learnt_shrinks_to_what_the_engine_takes(
    served: Rig, engine: RealEngine
) -> None:
    alice = served.tenant(model="auto")
    before = endpoint(served, "auto")
    assert before["auto"]
    calls = [alice.start(**body(CHAT, "Go on.", engine.endless, stream=True)) for _ in range(16)]
    until(lambda: endpoint(served, "auto")["max_running"] <= SLOTS + 2, "it shrinks")
    note(engine.kind, f"learnt capacity, {SLOTS} places", endpoint(served, "auto")["max_running"])
    for call in calls:
        call.hang_up()
    engine.idle()
