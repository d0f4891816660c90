"""A caller that goes away: its place comes back, its engine stops, what it got is on the record."""

from __future__ import annotations

import random

import pytest

from tests.acceptance.gateway.caller import CHAT
from tests.acceptance.gateway.rig import Rig
from tests.acceptance.stack import until


def test_fifty_broken_streams_leave_the_one_slot_free(rig: Rig) -> None:
    """D01: a leaked slot would leave the call after it queued for good."""
    alice = rig.tenant(limits={"max_running": 1})
    for turn in range(50):
        rig.engine.script("out=40,hang@5", times=1)  # it cannot end before the caller leaves
        call = alice.start(stream=True)
        call.read_events(3)
        call.hang_up(reset=turn % 2 == 1)
        assert alice.chat().status == 200
    rig.running(alice.tenant, 0)
    rig.idle()
    ends = [row["finish_reason"] for row in rig.records(alice.tenant, 100)]
    assert ends.count("cancelled") == 50


@pytest.mark.parametrize("model", ["chat", "plain"])
def test_what_was_delivered_before_the_hang_up_is_billed(rig: Rig, model: str) -> None:
    """D02, R04: an engine that tells its usage as it goes, and one that tells it at the end."""
    alice = rig.tenant()
    rig.engine.script("in=30,out=400,hang@60")
    call = alice.start(model=model, stream=True, max_tokens=400)
    call.read_events(42)  # the first has the role, and maybe a token
    call.hang_up()
    [row] = rig.records(alice.tenant, 1)
    seen = until(lambda: rig.engine.saw(row["request_id"]), "the engine's log")
    assert 40 <= row["completion_tokens"] <= seen["tokens_sent"] < 400
    assert (row["finish_reason"], row["status"]) == ("cancelled", 499)
    assert row["usage_source"] == "counted"
    assert row["cost"] == row["prompt_tokens"] + row["completion_tokens"]
    assert row["prompt_tokens"] == 30 or model == "plain"


def test_a_caller_that_leaves_the_queue_is_never_sent_to_an_engine(rig: Rig) -> None:
    alice = rig.tenant(limits={"max_running": 1, "max_queued": 1})
    rig.engine.script("hang", times=1)
    first = alice.start()
    until(lambda: rig.engine.load() == 1, "the first call runs")
    second = alice.start()
    rig.queued(alice.tenant, 1)
    second.hang_up()
    rig.queued(alice.tenant, 0)
    [row] = rig.records(alice.tenant, 1)
    assert (row["finish_reason"], row["status"], row["cost"]) == ("cancelled", 499, 0)
    assert rig.engine.saw(row["request_id"]) is None
    third = alice.start(max_tokens=1)  # its place in the queue is free again
    rig.queued(alice.tenant, 1)
    first.hang_up()
    assert third.answer().status == 200


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("words", ["hold=60s", "hang"])
def test_an_engine_hears_at_once_that_nobody_waits(rig: Rig, words: str, stream: bool) -> None:
    """D18: before anything was answered."""
    alice = rig.tenant(limits={"max_running": 1})
    rig.engine.script(words, times=1)
    call = alice.start(stream=stream)
    until(lambda: rig.engine.load() == 1, "the engine works")
    call.hang_up()
    until(lambda: rig.engine.load() == 0, "the engine has stopped")
    [row] = rig.records(alice.tenant, 1)
    assert row["finish_reason"] == "cancelled"
    assert until(lambda: rig.engine.saw(row["request_id"]), "its log")["closed_by_client"]
    assert alice.chat().status == 200


def test_hang_ups_at_any_moment_leave_nothing_behind(rig: Rig) -> None:
    alice = rig.tenant(limits={"max_running": 8})
    rig.engine.script("out=30,gap=2ms")
    dice = random.Random(7)
    calls = [alice.start(stream=dice.random() < 0.7) for _ in range(60)]
    for call in dice.sample(calls, 60):
        if dice.random() < 0.2:
            call.answer()
        else:
            if dice.random() < 0.5:
                _ = call.response
            call.hang_up(reset=dice.random() < 0.5)
    rig.running(alice.tenant, 0)
    rig.queued(alice.tenant, 0)
    rig.records(alice.tenant, 60)
    rig.idle()


def test_a_caller_that_leaves_while_it_still_sends_is_a_cancelled_call(rig: Rig) -> None:
    alice = rig.tenant(limits={"max_running": 1, "max_queued": 0})
    alice.send(CHAT, b'{"model": "chat"', {"Content-Length": "1000"}).hang_up()
    [row] = rig.records(alice.tenant, 1)
    assert (row["finish_reason"], row["status"], row["cost"]) == ("cancelled", 499, 0)
    assert alice.chat().status == 200


def test_a_slow_reader_gets_all_of_its_answer_and_holds_up_nobody(rig: Rig) -> None:
    alice, bob = rig.tenant(), rig.tenant()
    rig.engine.script("in=7,out=1000", times=1)
    slow = alice.start(stream=True, n=16, receive_buffer=4096)
    slow.read_events(1)
    assert bob.chat().status == 200
    answer = slow.answer()
    assert answer.done
    assert rig.record(answer)["completion_tokens"] == 16 * 1000


def test_a_caller_that_never_reads_does_not_keep_its_slot(rig: Rig) -> None:
    """The pool's total time bounds the caller's slowness too."""
    model = rig.pool(timeouts={"total": 3})
    alice = rig.tenant(limits={"max_running": 1})
    rig.engine.script("out=1000", times=1)
    stuck = alice.start(model=model, stream=True, n=16, receive_buffer=4096)
    assert stuck.response.status == 200
    [row] = rig.records(alice.tenant, 1)
    assert row["finish_reason"] == "timeout"
    assert alice.chat().status == 200
    stuck.hang_up()
