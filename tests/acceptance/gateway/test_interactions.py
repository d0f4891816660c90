"""Interactions, soft limits, budgets that demote or alert, and counted prompts, end to end."""

from __future__ import annotations

from typing import Any

import httpx

from tests.acceptance.gateway.caller import HELLO
from tests.acceptance.gateway.rig import Rig, select
from tests.acceptance.stack import PATIENCE_S, until


def daily(cost: float, **more: Any) -> list[dict[str, Any]]:
    return [{"name": "daily", "kind": "sustained", "cost": cost, "period": "day", **more}]


def test_an_interaction_is_throttled_at_its_first_call_only(rig: Rig) -> None:
    limits = {"requests_per_minute": 1}
    alice, bob = rig.tenant(limits=limits), rig.tenant(limits=limits)
    named = {"X-Fairlane-Interaction": "trip-1"}
    assert [alice.chat(headers=named).status for _ in range(4)] == [200] * 4
    assert alice.chat(headers={"X-Fairlane-Interaction": "trip-2"}).status == 429
    assert bob.chat().status == 200
    assert bob.chat(headers=named).status == 429  # Alice's id is nothing of Bob's
    rows = rig.records(alice.tenant, 5)
    assert [row["interaction"] for row in rows] == ["trip-1"] * 4 + ["trip-2"]


def test_a_soft_limit_refuses_only_while_others_wait(rig: Rig) -> None:
    model = rig.pool(most=1)
    soft = {"limits": {"requests_per_minute": 1}, "soft_limits": ["requests_per_minute"]}
    alice, bob = rig.tenant(model=model, **soft), rig.tenant(model=model)
    assert [alice.chat().status for _ in range(3)] == [200] * 3
    rig.engine.script("hang", times=1)
    running = bob.start()
    rig.running(bob.tenant, 1)
    waiting = bob.start()
    rig.queued(bob.tenant, 1)
    refused = alice.chat()
    assert (refused.status, refused.code) == (429, "rate_limit_exceeded")
    running.hang_up()
    assert waiting.answer().status == 200
    assert alice.chat().status == 200


def test_a_used_up_budget_that_demotes_sends_to_the_lowest_lane(rig: Rig) -> None:
    alice = rig.tenant(model=rig.pool(), budgets=daily(8, on_exhausted="demote"))
    rig.engine.script("in=5,out=5")
    lanes = [alice.chat(max_tokens=5).headers["x-fairlane-lane"] for _ in range(2)]
    assert lanes == ["normal", "batch"]
    assert [row["lane"] for row in rig.records(alice.tenant, 2)] == lanes
    seen = rig.engine.seen()[-2:]
    assert [call["headers"]["x-vllm-priority"] for call in seen] == ["11", "21"]


def test_a_used_up_budget_that_alerts_lets_in_and_a_person_is_told(rig: Rig) -> None:
    alice = rig.tenant(model=rig.pool(), budgets=daily(8, on_exhausted="alert"))
    rig.engine.script("in=5,out=5")
    assert [alice.chat(max_tokens=5).status for _ in range(3)] == [200] * 3
    subject = f"tenant:{alice.tenant}/daily"

    def told() -> list[dict[str, Any]]:
        """The gateway's own alert; the worker tells of a budget that is nearly used up, too."""
        where = "SELECT * FROM metering_alert WHERE subject = ? AND kind = 'budget_used_up'"
        return select(rig.stack.folder, where, subject)

    [alert] = until(told, "the alert")
    assert alert["resolved_at"] is None
    rig.change("tenants", alice.tenant, budgets=daily(1000, on_exhausted="alert"))
    until(lambda: told()[0]["resolved_at"], "the alert is over")


def test_an_engines_own_count_decides_on_a_long_input(rig: Rig) -> None:
    model = rig.pool(tokenizer={"kind": "engine"})
    alice = rig.tenant(model=model, limits={"max_input_tokens": 1})
    url = rig.engine.url.removesuffix("/v1") + "/tokenize"
    asked = {"model": model, "messages": HELLO}
    count = httpx.post(url, json=asked, timeout=PATIENCE_S).json()["count"]
    refused = alice.chat()
    assert refused.code == "context_length_exceeded"
    assert f"about {count} tokens" in refused.message
    pool = until(lambda: rig.live()["pools"].get(model), "a sample of the pool")
    assert pool["tokenizer"] == {"kind": "engine", "fault": ""}
