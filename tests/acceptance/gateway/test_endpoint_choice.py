"""Which of a pool's endpoints a call goes to, as its engines see it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.acceptance.gateway.caller import Call, Caller
from tests.acceptance.gateway.rig import Rig
from tests.acceptance.stack import until


@pytest.fixture
def alice(rig: Rig) -> Caller:
    """Of a pool of two endpoints, to which nobody has sent anything yet."""
    return rig.tenant(model=rig.pool(endpoints=ends(rig)))


def ends(rig: Rig, drained: str = "") -> list[dict[str, Any]]:
    return [{"url": engine.url, "drain": engine.url == drained} for engine in rig.engines]


def said(about: str) -> list[dict[str, str]]:
    """A prompt that shares no beginning with one about something else."""
    return [{"role": "user", "content": f"{about} " * 200}]


def under_way(rig: Rig, alice: Caller, about: str) -> Call:
    """A stream that goes on until its engine is told otherwise."""
    before = rig.gauge("running", alice.tenant)
    call = alice.start(stream=True, messages=said(about))
    call.read_events(2)
    rig.running(alice.tenant, int(before) + 1)
    return call


def went_to(rig: Rig, alice: Caller, about: str) -> str:
    answer = alice.chat(messages=said(about), max_tokens=1)
    assert answer.status == 200
    return str(rig.record(answer)["endpoint"])


def begun_at(rig: Rig, call: Call) -> str:
    """Where a call went that has not ended."""
    sent = str(call.response.getheader("x-request-id"))
    [found] = [engine.url for engine in rig.engines if engine.saw(sent)]
    return found


def finished(rig: Rig, *calls: Call) -> None:
    for engine in rig.engines:
        engine.script()
    for call in calls:
        answer = call.answer()
        assert answer.done
        assert rig.record(answer)["status"] == 200


def hold(rig: Rig) -> None:
    for engine in rig.engines:
        engine.script("in=300,out=60,wait@2", times=1)


def test_a_call_goes_where_less_is_under_way(rig: Rig, alice: Caller) -> None:
    hold(rig)
    call = under_way(rig, alice, "one")
    busy = begun_at(rig, call)
    for engine in rig.engines:
        if engine.url != busy:
            engine.script()
    for number in range(3):
        assert went_to(rig, alice, f"other {number}") != busy
    finished(rig, call)


def test_a_prompt_goes_where_its_beginning_was_before(rig: Rig, alice: Caller) -> None:
    hold(rig)
    first, second = under_way(rig, alice, "one"), under_way(rig, alice, "two")
    place = {"one": begun_at(rig, first), "two": begun_at(rig, second)}
    assert len(set(place.values())) == 2
    finished(rig, first, second)
    rig.running(alice.tenant, 0)
    for about in ("two", "one", "one", "two", "two"):
        assert went_to(rig, alice, about) == place[about]


def test_an_endpoint_that_is_drained_finishes_what_it_has_and_gets_no_more(
    rig: Rig, alice: Caller
) -> None:
    hold(rig)
    calls = [under_way(rig, alice, "one"), under_way(rig, alice, "two")]
    left, stays = (begun_at(rig, call) for call in calls)
    assert left != stays
    rig.change("pools", alice.model, endpoints=ends(rig, drained=left))
    for engine in rig.engines:
        if engine.url == stays:
            engine.script()
    for about in ("one", "three", "four"):
        assert went_to(rig, alice, about) == stays
    finished(rig, *calls)
    rig.change("pools", alice.model, endpoints=ends(rig, drained=stays))
    until(lambda: went_to(rig, alice, "one") == left, "it is in use again")
