"""What fails under load loses no answer that was given, leaks no place, and is counted once."""

from __future__ import annotations

import signal

from tests.acceptance.shared.deployment import Deployment
from tests.acceptance.stack import until


def test_what_a_killed_gateway_held_comes_back_and_is_recorded_once(pair: Deployment) -> None:
    pair.engine.script("in=1,out=20,hang@10")
    here, there = pair.callers("left")
    calls = [there.start(stream=True, max_tokens=20) for _ in range(2)]
    until(lambda: pair.engine.load() == 2, "both run")
    until(lambda: pair.known_to_run("left") == 2, "and the other gateway can tell")
    victim = pair.gateways[1]
    assert victim.serving is not None
    victim.serving.send_signal(signal.SIGKILL)
    victim.serving.wait()
    victim.serving = None
    for call in calls:
        call.close()
    pair.engine.script("in=1,out=20")
    until(lambda: pair.open_reservations("left") == 0, "what it held is settled")
    until(lambda: len(pair.records("left")) == 2, "and recorded")
    victim.start("--role", "gateway")  # its journal says the same of them
    found = pair.records("left").values()
    assert {record["usage_source"] for record in found} == {"estimated"}
    spent = sum(record["cost"] for record in found)
    served = 0
    while here.chat(max_tokens=20).status == 200:
        served += 1
    assert served
    assert spent + 21 * served <= 200


def test_redis_killed_under_load_closes_the_door_and_loses_no_answer(pair: Deployment) -> None:
    pair.engine.script("in=5,out=20,hang@10")
    running = [caller.start(stream=True) for caller in pair.callers("heavy", "few")]
    until(lambda: pair.engine.load() == 2, "two run")
    waiting = [caller.start() for caller in pair.callers("light", "few")]
    until(lambda: pair.open_reservations("light") == 2, "two wait")
    pair.redis.kill()
    for call in waiting:
        answer = call.answer()
        assert (answer.status, answer.code) == (503, "state_unavailable")
        assert int(answer.headers["retry-after"]) >= 1
    refused = pair.callers("light")[0].chat()
    assert (refused.status, refused.code) == (503, "state_unavailable")
    pair.engine.script("in=5,out=20")
    pair.redis.start()
    for caller in pair.callers("light"):
        until(lambda c=caller: c.chat().status == 200, "it serves again")
    until(lambda: pair.open_reservations("heavy") == 2, "it knows of what runs all the while")
    for call in running:
        call.hang_up()
    until(lambda: pair.open_reservations("heavy") == 0, "all came back")
    for caller in pair.callers("light", "few"):
        assert caller.chat().status == 200
