"""Priority inside the engine: it has few places, and Fairlane sends it more than those."""

from __future__ import annotations

from typing import Any

import pytest

from tests.acceptance.gateway.caller import CHAT, Call, Caller
from tests.acceptance.gateway.rig import Rig
from tests.acceptance.stack import until
from tests.engines.asking import began, body, endpoint
from tests.engines.noted import note
from tests.engines.process import SLOTS, RealEngine

EACH = 4


def start(caller: Caller, lane: str, tokens: int) -> Call:
    asked = body(CHAT, "Count on.", tokens, stream=True)
    return caller.start(headers={"X-Fairlane-Lane": lane}, **asked)


def begun(served: Rig, engine: RealEngine, model: str) -> list[str]:
    """Lanes, in the order in which the engine began with calls that all waited in it."""
    alice = served.tenant(model=model)
    holding = [start(alice, "batch", engine.endless) for _ in range(SLOTS)]
    until(lambda: engine.running() == SLOTS, "all places are taken")
    calls = [start(alice, lane, 16) for lane in ("batch", "urgent") for _ in range(EACH)]
    until(lambda: engine.waiting() == 2 * EACH, "the others wait in the engine")
    for call in holding:
        call.hang_up()
    answers = [call.answer() for call in calls]
    assert [answer.status for answer in answers] == [200] * len(answers)
    rows: list[dict[str, Any]] = [served.record(answer) for answer in answers]
    return [row["lane"] for row in sorted(rows, key=began)]


@pytest.mark.parametrize("model", ["real", "body"])
def test_an_urgent_call_passes_those_that_wait_in_the_engine(
    served: Rig, engine: RealEngine, model: str
) -> None:
    """By vLLM's header, and by the field that older ones read."""
    if engine.kind != "vllm":
        pytest.skip("it has no priority")
    order = begun(served, engine, model)
    note(engine.kind, f"begun in it, pool {model}", " ".join(order))
    assert order[: EACH - 1] == ["urgent"] * (EACH - 1), order
    assert order[1 - EACH :] == ["batch"] * (EACH - 1), order


def test_a_caller_does_not_choose_its_priority(served: Rig, engine: RealEngine) -> None:
    """Not even by a number that vLLM answers with a 500."""
    alice = served.tenant(model="real")
    for priority in ("9" * 30, "-5"):
        answer = alice.chat(
            headers={"X-Vllm-Priority": priority}, **body(CHAT, "Me first", 2, priority=-(10**30))
        )
        assert answer.status == 200, answer.body


def test_an_engine_that_ignores_priorities_is_flagged(served: Rig, engine: RealEngine) -> None:
    due = engine.kind != "vllm"
    until(lambda: endpoint(served, "real").get("priority_ignored") is due, "the flag is right")
