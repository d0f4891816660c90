"""A gateway that was stopped for longer than its lease, and wakes: others have its places then."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from tests.acceptance.gateway.caller import Call, Caller
from tests.acceptance.shared.deployment import Deployment
from tests.acceptance.stack import Stack, until


@pytest.fixture
def sleeper(pair: Deployment) -> Iterator[Stack]:
    """The second gateway; awake again, whatever a test did."""
    yield pair.gateways[1]
    send(pair.gateways[1], signal.SIGCONT)


def send(gateway: Stack, what: signal.Signals) -> None:
    assert gateway.serving is not None
    gateway.serving.send_signal(what)


def place(caller: Caller) -> Call:
    """A call that runs; on a slow machine Redis may be out of reach for a moment."""

    def begun() -> Call | None:
        call = caller.start(stream=True)
        if call.response.status == 200:
            return call
        call.close()
        return None

    call: Call = until(begun, "it runs")
    return call


def test_it_uses_no_place_that_others_got_and_its_answers_are_recorded_as_they_were(
    pair: Deployment, sleeper: Stack
) -> None:
    pair.engine.script("in=99,out=20,hold=2s")
    here, there = pair.callers("heavy", "few")
    held = [there.start(max_tokens=20) for _ in range(2)]
    until(lambda: pair.engine.load() == 2, "both places are taken")
    waiting = pair.callers("light", "few")[1].start(max_tokens=20)
    until(lambda: pair.open_reservations("light") == 1, "one waits there")
    send(sleeper, signal.SIGSTOP)
    until(lambda: pair.engine.load() == 0, "the engine has answered what it holds")
    for tenant in ("heavy", "light"):
        until(lambda t=tenant: pair.open_reservations(t) == 0, "its lease has run out")
    pair.engine.script("in=1,out=20,hang@10")
    others = [place(here) for _ in range(2)]
    send(sleeper, signal.SIGCONT)
    answers = [call.answer() for call in held]
    assert [answer.status for answer in answers] == [200, 200]
    for _ in range(20):
        assert pair.engine.load() == 2
    pair.engine.script("in=1,out=20")
    for call in others:
        call.hang_up()
    last = waiting.answer()
    assert last.status == 200 or last.code == "state_unavailable"  # a slow machine took Redis away
    until(lambda: pair.open_reservations("heavy") == 0, "all came back")
    costs = [answer.json["usage"]["total_tokens"] for answer in answers]
    until(
        lambda: costs == [pair.records("heavy").get(each.id, {}).get("cost") for each in answers],
        "each is recorded with what was used, not with what others took it for",
    )
