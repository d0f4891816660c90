"""Every limit by itself: its code, its words, when to come back; and a refusal takes nothing."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests.acceptance.gateway.caller import CHAT, HELLO, Answer, Caller
from tests.acceptance.gateway.rig import Rig
from tests.acceptance.stack import until


def told(answer: Answer, status: int, code: str, *words: str) -> Answer:
    """The answer is this refusal, names these, and says when to come back as clients read it."""
    assert (answer.status, answer.code) == (status, code), answer.body
    for word in words:
        assert word in answer.message
    seconds, milliseconds = answer.headers["retry-after"], answer.headers["retry-after-ms"]
    assert int(seconds) >= 1
    assert (int(seconds) - 1) * 1000 < max(int(milliseconds), 1000) <= int(seconds) * 1000
    return answer


def occupied(rig: Rig, caller: Caller, **body: Any) -> Any:
    """A call that runs until it is hung up."""
    before = rig.engine.load()
    rig.engine.script("hang", times=1)
    call = caller.start(**body)
    until(lambda: rig.engine.load() > before, "the call runs")
    return call


# --- requests and tokens a minute -----------------------------------------------------------------


def test_requests_a_minute(rig: Rig) -> None:
    alice = rig.tenant(limits={"requests_per_minute": 2})
    assert [alice.chat().status for _ in range(2)] == [200, 200]
    refused = told(
        alice.chat(), 429, "rate_limit_exceeded", "requests_per_minute", "2", alice.tenant
    )
    assert int(refused.headers["retry-after"]) <= 61
    assert refused.headers["x-ratelimit-limit-requests"] == "2"
    assert refused.headers["x-ratelimit-remaining-requests"] == "0"
    assert "x-should-retry" not in refused.headers
    row = rig.record(refused)
    assert (row["finish_reason"], row["throttle_reason"]) == ("throttled", "requests_per_minute")
    assert (row["status"], row["cost"]) == (429, 0)


def test_refused_calls_use_up_nothing(rig: Rig) -> None:
    """D12."""
    alice = rig.tenant(limits={"requests_per_minute": 10})
    statuses = [alice.chat(max_tokens=1).status for _ in range(30)]
    assert statuses == [200] * 10 + [429] * 20
    rig.change("tenants", alice.tenant, limits={"requests_per_minute": 15})
    statuses = [alice.chat(max_tokens=1).status for _ in range(7)]
    assert statuses == [200] * 5 + [429] * 2


def test_malformed_calls_use_up_nothing(rig: Rig) -> None:
    alice = rig.tenant(limits={"requests_per_minute": 2})
    for _ in range(5):
        assert alice.chat(model="nothing-of-that-name").status == 404
        assert alice.chat(messages=[]).status == 400
    assert [alice.chat().status for _ in range(3)] == [200, 200, 429]


def test_tokens_a_minute_are_charged_as_tokens_and_told_truthfully(rig: Rig) -> None:
    """R14, R15, R16."""
    alice = rig.tenant(model=rig.pool(), limits={"tokens_per_minute": 100})
    rig.engine.script("in=20,out=10")
    text = [{"role": "user", "content": "x" * 70}]  # about 20 tokens
    left = []
    for _ in range(3):
        answer = alice.chat(messages=text, max_tokens=10)
        assert answer.status == 200
        assert answer.headers["x-ratelimit-limit-tokens"] == "100"
        left.append(int(answer.headers["x-ratelimit-remaining-tokens"]))
    assert left == [70, 40, 10]
    fourth = told(
        alice.chat(messages=text, max_tokens=10), 429, "rate_limit_exceeded", "tokens_per_minute"
    )
    assert fourth.headers["x-ratelimit-remaining-tokens"] == "10"
    assert int(fourth.headers["retry-after"]) <= 61


def test_five_calls_at_once_cannot_share_room_for_one(rig: Rig) -> None:
    """D04."""
    alice = rig.tenant(model=rig.pool(), limits={"tokens_per_minute": 100})
    answers = one_held_and_four_refused(rig, alice)
    assert sorted(answer.status for answer in answers) == [200, 429, 429, 429, 429]
    rig.engine.script("in=10,out=1")
    answer = alice.chat(max_tokens=1)
    assert answer.headers["x-ratelimit-remaining-tokens"] == str(100 - 70 - 11)


def one_held_and_four_refused(rig: Rig, alice: Caller) -> list[Answer]:
    """Five calls at once; the engine answers the one that it has when the others are refused."""
    rig.engine.script("in=10,out=60,wait")
    calls = [alice.start(max_tokens=60) for _ in range(5)]
    until(lambda: len(rig.rows(alice.tenant)) == 4, "all but one have ended")
    rig.engine.script()
    return [call.answer() for call in calls]


def taught(rig: Rig, words: str) -> str:
    """A model that has learnt how long answers are: as the engine's script says."""
    model = rig.pool()
    teacher = rig.tenant(model=model)
    rig.engine.script(words)
    for _ in range(5):
        calls = [teacher.start() for _ in range(8)]
        assert {call.answer().status for call in calls} == {200}
    return model


def test_nor_where_answers_have_been_short_and_these_run_long(rig: Rig) -> None:
    """D04 on a model that has learnt short answers: what a caller names is held, not the guess."""
    alice = rig.tenant(model=taught(rig, "in=10,out=2"), limits={"tokens_per_minute": 100})
    answers = one_held_and_four_refused(rig, alice)
    assert sorted(answer.status for answer in answers) == [200, 429, 429, 429, 429]
    for refused in (answer for answer in answers if answer.status == 429):
        told(refused, 429, "rate_limit_exceeded", "tokens_per_minute", "are held", "max_tokens")
        assert refused.headers["retry-after"] == "1"
    rig.engine.script("in=10,out=1")
    answer = alice.chat(max_tokens=1)
    assert answer.headers["x-ratelimit-remaining-tokens"] == str(100 - 70 - 11)


def test_a_large_max_tokens_alone_is_no_reason_to_refuse(rig: Rig) -> None:
    """What D04 must not cost: many clients name thousands with every call."""
    alice = rig.tenant(model=taught(rig, "in=10,out=8"), limits={"tokens_per_minute": 100})
    left = []
    for _ in range(4):
        answer = alice.chat(max_tokens=4000)
        assert answer.status == 200
        left.append(int(answer.headers["x-ratelimit-remaining-tokens"]))
    assert left == [82, 64, 46, 28]


def test_no_max_tokens_is_needed(rig: Rig) -> None:
    """D07, R07: nor is the first call refused because a guess is larger than the limit."""
    alice = rig.tenant(limits={"requests_per_minute": 5})
    assert alice.chat().status == 200
    rig.engine.script("in=5,out=5")
    bob = rig.tenant(model=rig.pool(), limits={"tokens_per_minute": 100})
    answer = bob.chat()
    assert answer.status == 200
    assert answer.headers["x-ratelimit-remaining-tokens"] == "90"
    assert rig.record(answer)["cost"] == 10
    carol = rig.tenant(
        budgets=[
            {"name": "burst", "kind": "burst", "cost": 100, "refill_per_second": 1},
            {"name": "daily", "kind": "sustained", "cost": 100, "period": "day"},
        ]
    )
    assert carol.chat().status == 200


# --- running and queued ---------------------------------------------------------------------------


def test_running_and_queue_depth(rig: Rig) -> None:
    alice = rig.tenant(limits={"max_running": 1, "max_queued": 1})
    first = occupied(rig, alice)
    second = alice.start()
    rig.queued(alice.tenant, 1)
    refused = told(alice.chat(), 429, "rate_limit_exceeded", "max_running", "max_queued", "1")
    assert rig.record(refused)["throttle_reason"] == "max_queued"
    first.hang_up()
    assert second.answer().status == 200
    assert alice.chat().status == 200


def test_no_queue_at_all(rig: Rig) -> None:
    alice = rig.tenant(limits={"max_running": 1, "max_queued": 0})
    first = occupied(rig, alice)
    refused = told(alice.chat(), 429, "rate_limit_exceeded", "max_running", "1")
    assert rig.record(refused)["throttle_reason"] == "max_running"
    first.hang_up()
    until(lambda: alice.chat().status == 200, "the slot is free again")


def test_who_may_queue_nothing_is_never_kept_waiting(rig: Rig) -> None:
    """`max_queued: 0` without a `max_running`: the pool is full, so the answer comes at once."""
    alice = rig.tenant(limits={"max_queued": 0, "requests_per_minute": 9})
    running = [occupied(rig, alice, model="two") for _ in range(2)]
    refused = told(alice.chat(model="two"), 429, "rate_limit_exceeded", "max_queued is 0")
    assert refused.headers["x-ratelimit-remaining-requests"] == "7"
    assert rig.record(refused)["throttle_reason"] == "max_queued"
    assert rig.engine.saw(refused.id) is None
    for call in running:
        call.hang_up()
    until(lambda: alice.chat(model="two").status == 200, "a place is free again")


@pytest.mark.parametrize("more", [{}, {"max_queued": 3}])
def test_who_may_run_nothing_is_refused_at_once(rig: Rig, more: dict[str, int]) -> None:
    alice = rig.tenant(limits={"max_running": 0, **more})
    refused = told(alice.chat(), 429, "rate_limit_exceeded", "max_running is 0", alice.tenant)
    assert int(refused.headers["retry-after"]) > 3600
    assert refused.headers["x-should-retry"] == "false"  # nobody's client sleeps for a day
    assert rig.record(refused)["throttle_reason"] == "max_running"
    rig.change("tenants", alice.tenant, limits={"max_running": 1})
    assert alice.chat().status == 200


def test_calls_past_the_running_limit_wait_and_are_all_served(rig: Rig) -> None:
    """R29: queued, not refused."""
    alice = rig.tenant(limits={"max_running": 2})
    rig.engine.script("in=5,out=5,wait")
    calls = [alice.start() for _ in range(12)]
    rig.queued(alice.tenant, 10)
    all_wait = time.monotonic()
    until(lambda: rig.engine.load() == 2, "as many as may run")
    waited_ms = (time.monotonic() - all_wait) * 1000
    rig.engine.script()
    assert [call.answer().status for call in calls] == [200] * 12
    times = sorted(row["queue_ms"] for row in rig.records(alice.tenant, 12))
    assert times[2] >= waited_ms  # all but the first two


def test_the_queue_is_bounded_where_only_it_has_a_limit(rig: Rig) -> None:
    alice = rig.tenant(limits={"max_queued": 2})
    running = [occupied(rig, alice, model="two") for _ in range(2)]
    waiting = [alice.start(model="two") for _ in range(2)]
    rig.queued(alice.tenant, 2)
    told(alice.chat(model="two"), 429, "rate_limit_exceeded", "max_queued", "2")
    for call in running:
        call.hang_up()
    assert [call.answer().status for call in waiting] == [200, 200]


def test_a_wait_past_the_lanes_limit(rig: Rig) -> None:
    """R30, R31: it is refused as busy, by its own lane's bound, and the message says so."""
    alice = rig.tenant(limits={"max_running": 1})
    first = occupied(rig, alice)
    waited = alice.chat({"X-Fairlane-Lane": "brief"})
    told(waited, 503, "queue_timeout", "brief", "max_queue_seconds", "0.3")
    row = rig.record(waited)
    assert (row["finish_reason"], row["throttle_reason"]) == ("timeout", "queue_timeout")
    assert row["queue_ms"] >= 300
    assert row["cost"] == 0
    first.hang_up()
    assert alice.chat().status == 200


# --- sizes ---


def test_input_and_output_limits(rig: Rig) -> None:
    alice = rig.tenant(limits={"max_input_tokens": 20, "max_output_tokens": 8})
    long = alice.chat(messages=[{"role": "user", "content": "word " * 200}])
    assert (long.status, long.code) == (400, "context_length_exceeded")
    assert "max_input_tokens" in long.message
    assert "20" in long.message
    much = alice.chat(max_tokens=9)
    assert (much.status, much.code) == (400, "output_limit_exceeded")
    assert "8" in much.message
    answer = alice.chat(ignore_eos=True)  # no limit given: policy's holds
    assert answer.json["usage"]["completion_tokens"] == 8


def test_a_model_with_nothing_but_an_alias_and_a_wrong_tenant(rig: Rig) -> None:
    alice = rig.tenant(models=["chat"])
    assert alice.chat(model="gpt-4o-mini").status == 200
    other = alice.chat(model="two")
    assert (other.status, other.code) == (403, "model_not_allowed")
    shown = [model["id"] for model in alice.get("/v1/models").json["data"]]
    assert shown == ["chat", "gpt-4o-mini"]


# --- burst ---


def test_a_burst_budget_tells_the_exact_wait(rig: Rig) -> None:
    alice = rig.tenant(
        model=rig.pool(),
        budgets=[{"name": "burst", "kind": "burst", "cost": 50, "refill_per_second": 40}],
    )
    rig.engine.script("in=25,out=25")
    text = [{"role": "user", "content": "x" * 90}]

    def refused_once() -> Answer | None:
        """The first call takes all there is; on a slow machine it may be back by the second."""
        answer = alice.chat(messages=text, max_tokens=25)
        return None if answer.status == 200 else answer

    assert refused_once() is None
    answer = until(refused_once, "the bucket is empty")
    refused = told(answer, 429, "rate_limit_exceeded", "burst", "50", "40")
    assert rig.record(refused)["throttle_reason"] == f"tenant:{alice.tenant}/burst"
    time.sleep(int(refused.headers["retry-after-ms"]) / 1000)  # what the answer asks of the caller
    assert alice.chat(messages=text, max_tokens=25).status == 200


def test_what_one_limit_refuses_is_not_taken_from_another(rig: Rig) -> None:
    """R47."""
    alice = rig.tenant(
        model=rig.pool(),
        limits={"requests_per_minute": 10},
        budgets=[{"name": "daily", "kind": "sustained", "cost": 20, "period": "day"}],
    )
    rig.engine.script("in=5,out=5")
    assert [alice.chat(max_tokens=5).status for _ in range(2)] == [200, 200]
    for _ in range(20):
        assert alice.chat(max_tokens=5).code == "insufficient_quota"
    more = [{"name": "daily", "kind": "sustained", "cost": 1000, "period": "day"}]
    rig.change("tenants", alice.tenant, budgets=more)
    answer = alice.chat(max_tokens=5)
    assert answer.headers["x-ratelimit-remaining-requests"] == "7"
    assert [alice.chat(messages=HELLO, max_tokens=5).status for _ in range(8)] == [200] * 7 + [429]


# --- overload ---


@pytest.mark.parametrize("then", ["reject", "demote", "queue"])
def test_a_wait_that_is_known_to_be_too_long(rig: Rig, then: str) -> None:
    """What the tier says to do when the lane's backlog takes longer than its limit."""
    model = rig.pool(2)
    heavy = rig.tenant(model=model)
    alice = rig.tenant(model=model, on_overload=then, limits={"requests_per_minute": 9})
    rig.engine.script("out=20,hold=120ms")
    for call in [heavy.start() for _ in range(24)]:  # a pace is known after a second of backlog
        assert call.answer().status == 200
    rig.engine.script("out=200,hang@1", times=2)
    running = [heavy.start(stream=True) for _ in range(2)]
    until(lambda: rig.engine.load() == 2, "both places are taken")
    waiting = [
        heavy.start(headers={"X-Fairlane-Lane": "urgent"}, max_tokens=30_000, n=100)
        for _ in range(5)
    ]
    rig.queued(heavy.tenant, 5)
    call = alice.start(headers={"X-Fairlane-Lane": "brief"}, max_tokens=1)
    if then == "demote":
        rig.queued(alice.tenant, 1)
        for other in [*running, *waiting]:
            other.hang_up()
        assert call.answer().headers["x-fairlane-lane"] == "batch"
        return
    answer = call.answer()
    told(answer, 503, "overloaded" if then == "reject" else "queue_timeout", "0.3")
    for other in [*running, *waiting]:
        other.hang_up()
    left = alice.chat().headers["x-ratelimit-remaining-requests"]
    assert left == "8"  # what was turned away was no request of this minute


def test_a_body_past_the_limit_is_refused_and_takes_nothing(rig: Rig) -> None:
    alice = rig.tenant(limits={"requests_per_minute": 1, "max_running": 1, "max_queued": 0})
    answer = alice.send(CHAT, b'{"model": "' + b"x" * (16 * 2**20)).answer()
    assert (answer.status, answer.code) == (413, "request_too_large")
    assert str(16 * 2**20) in answer.message
    assert rig.record(answer)["status"] == 413
    assert alice.chat().status == 200
