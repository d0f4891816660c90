"""What an admin changes is in force in the running gateway, and no request fails for it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest

from tests.acceptance.gateway.caller import CHAT, Answer, Call, Caller
from tests.acceptance.gateway.rig import Rig
from tests.acceptance.stack import until


def one_runs_one_waits(rig: Rig, caller: Caller) -> tuple[Call, Call]:
    """The first streams until the engine is told otherwise; the second is queued behind it."""
    rig.engine.script("in=5,out=60,wait@2", times=1)
    running = caller.start(stream=True)
    running.read_events(2)
    waiting = caller.start()
    rig.queued(caller.tenant, 1)
    return running, waiting


def finished_and_charged(rig: Rig, call: Call) -> None:
    rig.engine.script()
    answer = call.answer()
    assert answer.done
    row = rig.record(answer)
    assert (row["status"], row["cost"], row["usage_source"]) == (200, 65, "engine")


def revoke(rig: Rig, caller: Caller) -> None:
    rig.ask("POST", f"/keys/{caller.key_id}/revoke/", {})


def suspend(rig: Rig, caller: Caller) -> None:
    rig.change("tenants", caller.tenant, enabled=False)


def remove_tenant(rig: Rig, caller: Caller) -> None:
    rig.remove("tenants", caller.tenant)


def remove_pool(rig: Rig, caller: Caller) -> None:
    rig.remove("pools", caller.model)


@pytest.mark.parametrize(
    ("change", "queued", "afterwards"),
    [
        (revoke, (401, "invalid_api_key"), (401, "invalid_api_key")),
        (suspend, (403, "tenant_suspended"), (403, "tenant_suspended")),
        (remove_tenant, (403, "tenant_suspended"), (401, "invalid_api_key")),
        (remove_pool, (503, "no_endpoint"), (404, "model_not_found")),
    ],
)
def test_what_is_taken_away_refuses_the_waiting_and_lets_the_running_finish(
    rig: Rig,
    change: Callable[[Rig, Caller], None],
    queued: tuple[int, str],
    afterwards: tuple[int, str],
) -> None:
    alice = rig.tenant(model=rig.pool(1))
    running, waiting = one_runs_one_waits(rig, alice)
    change(rig, alice)
    answer = waiting.answer()
    assert (answer.status, answer.code) == queued
    row = rig.record(answer)
    assert (row["status"], row["cost"]) == (queued[0], 0)
    assert rig.engine.saw(answer.id) is None
    answer = alice.chat()
    assert (answer.status, answer.code) == afterwards
    finished_and_charged(rig, running)


def test_a_key_that_is_revoked_while_the_body_comes_in_is_refused(rig: Rig) -> None:
    """D08: no success after the revocation, however slowly the call is sent."""
    alice = rig.tenant()
    other = rig.key(alice.tenant)
    body = b'{"model": "chat", "messages": [{"role": "user", "content": "x"}]}'
    slow = alice.send(CHAT, body[:10], {"Content-Length": str(len(body))})
    revoke(rig, alice)
    until(lambda: alice.chat().status == 401, "the key is refused")
    slow.send_more(body[10:])
    answer = slow.answer()
    assert (answer.status, answer.code) == (401, "invalid_api_key")
    assert other.chat().status == 200


def test_a_rotated_key_works_beside_the_old_one_and_counts_as_one(rig: Rig) -> None:
    """D09, R11: both in the grace, only the new one without."""
    old = rig.tenant()
    new = rig.rotated(old, grace_hours=1)
    answers = [old.chat(), new.chat()]
    newest = rig.rotated(new, grace_hours=0)
    until(lambda: new.chat().status == 401, "the one before is refused")
    answers.append(newest.chat())
    assert [answer.status for answer in answers] == [200] * 3
    assert {rig.record(answer)["key"] for answer in answers} == {old.key_id}


def test_limits_lanes_models_and_weights_change_while_it_runs(rig: Rig) -> None:
    alice = rig.tenant(model=rig.pool(1))
    running, waiting = one_runs_one_waits(rig, alice)
    rig.change("tenants", alice.tenant, weight=7)

    def weight() -> float | None:
        """As the newest sample tells; the first ones may be from before the pool was made."""
        lane = rig.live()["pools"].get(alice.model, {"lanes": {}})["lanes"].get("normal")
        told = lane["tenants"].get(alice.tenant) if lane else None
        return told["weight"] if told else None

    until(lambda: weight() == 7, "the new weight is at work")
    rig.change("tenants", alice.tenant, lane="urgent")
    finished_and_charged(rig, running)
    assert waiting.answer().headers["x-fairlane-lane"] == "normal"  # where it had queued
    assert alice.chat().headers["x-fairlane-lane"] == "urgent"
    rig.change("tenants", alice.tenant, limits={"max_output_tokens": 3})
    assert alice.chat(max_tokens=4).code == "output_limit_exceeded"
    rig.change("tenants", alice.tenant, models=["two"], limits=None)
    assert alice.chat().code == "model_not_allowed"
    rig.change("tenants", alice.tenant, models=None, allowed_lanes=["urgent"])
    assert alice.chat({"X-Fairlane-Lane": "batch"}).code == "lane_not_allowed"


def test_a_running_limit_holds_through_every_change_of_it(rig: Rig) -> None:
    """R10: never more at the engine than the larger of the two limits."""
    alice = rig.tenant(model=rig.pool(), limits={"max_running": 2})
    rig.engine.script("out=5,hold=30ms")
    with load(alice, 5) as answers:
        for turn in range(12):
            rig.change("tenants", alice.tenant, limits={"max_running": 1 + turn % 2})
    assert {answer.status for answer in answers} == {200}
    seen = rig.engine.seen(*(answer.id for answer in answers))
    moments = sorted(
        [(call["arrived"], 1) for call in seen] + [(call["ended"], -1) for call in seen]
    )
    at_once = most = 0
    for _, change in moments:
        at_once += change
        most = max(most, at_once)
    assert most <= 2


def test_twenty_policies_are_applied_under_load_and_no_call_fails(rig: Rig) -> None:
    """Issue 2, item 5."""
    alice, bob = rig.tenant(model=rig.pool()), rig.tenant({"name": "bot"})
    document = rig.ask("GET", "/policy/")
    before = rig.metric("fairlane_policy_revision")
    with load(alice, 2) as plain, load(bob, 2, stream=True) as streamed:
        for turn in range(20):
            rig.apply(edited(document, alice.tenant, turn))
    assert rig.metric("fairlane_policy_revision") == before + 20
    assert len(plain) + len(streamed) >= 20
    assert {answer.status for answer in (*plain, *streamed)} == {200}
    assert all(answer.done for answer in streamed)
    rig.apply(document)  # as other tests expect it


def edited(document: dict[str, Any], tenant: str, turn: int) -> dict[str, Any]:
    """Another weight, limit, lane, budget, ceiling and capacity on each turn."""

    def with_changes(part: dict[str, Any]) -> dict[str, Any]:
        if part.get("name") == tenant:
            daily = {"name": "daily", "kind": "sustained", "cost": 1e9 + turn, "period": "day"}
            limits = {"max_running": 10 + turn, "requests_per_minute": 100_000 + turn}
            lane = ("urgent", "normal", "batch")[turn % 3]
            return {**part, "weight": 1 + turn, "limits": limits, "budgets": [daily], "lane": lane}
        if part.get("name") == "batch":
            return {**part, "ceiling": 0.5 + turn / 100}
        if part.get("model") == "chat":
            more = {"max_running": 64 + turn, "max_running_tokens": 1_000_000}
            return {**part, "capacity": more}
        return part

    lists = ("lanes", "pools", "tenants")
    changed = {name: [with_changes(part) for part in document[name]] for name in lists}
    return {**document, **changed}


@contextmanager
def load(caller: Caller, threads: int, **body: Any) -> Iterator[list[Answer]]:
    """Calls one after another on so many threads, until the block ends; their answers."""
    answers: list[Answer] = []
    stop = threading.Event()

    def work() -> None:
        while not stop.is_set():
            answers.append(caller.chat(max_tokens=4, **body))

    with ThreadPoolExecutor(threads) as pool:
        working = [pool.submit(work) for _ in range(threads)]
        try:
            until(lambda: len(answers) >= threads, "the load runs")
            yield answers
        finally:
            stop.set()
            for each in working:
                each.result()
