"""`fail-open` by whole processes: each goes on with its part, and afterwards all are one again."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from metering.shared.library import STATE
from tests.acceptance.shared.deployment import Deployment
from tests.acceptance.stack import PATIENCE_S, Stack, until


@pytest.fixture
def pair(pair: Deployment) -> Iterator[Deployment]:
    restart(pair, "fail-open")
    yield pair
    restart(pair, "fail-closed")


def restart(pair: Deployment, state_loss: str) -> None:
    for gateway in pair.gateways:
        gateway.stop()
        gateway.settings["FAIRLANE_STATE_LOSS"] = state_loss
        gateway.start("--role", "gateway")


def state(gateway: Stack) -> str:
    lines = httpx.get(f"{gateway.url}/metrics", timeout=PATIENCE_S).text.splitlines()
    found = [
        n for n in ("shared", "lost", "apart") if f'fairlane_state{{state="{n}"}} 1.0' in lines
    ]
    return " ".join(found)


def all_are(pair: Deployment, name: str) -> None:
    until(lambda: {state(gateway) for gateway in pair.gateways} == {name}, f"each is {name}")


def all_know_of_all(pair: Deployment) -> None:
    """Its part goes by how many a gateway saw at its last heartbeat: one since all were there."""
    with pair.redis.client() as client:

        def beats() -> list[float]:
            return [at for _, at in client.zrange(f"{STATE}alive", 0, -1, withscores=True)]

        until(lambda: len(beats()) >= len(pair.gateways), "all are on the list")
        last = max(beats())
        until(lambda: sum(at > last for at in beats()) >= len(pair.gateways), "all have beaten")


def test_each_serves_with_its_part_and_what_it_let_in_counts_for_all_afterwards(
    pair: Deployment,
) -> None:
    pair.engine.script("in=5,out=20,hang@10")
    running = [caller.start(stream=True) for caller in pair.callers("heavy", "few")]
    until(lambda: pair.engine.load() == 2, "two run")
    waiting = [caller.start() for caller in pair.callers("light", "few")]
    until(lambda: pair.open_reservations("light") == 2, "two wait")
    all_know_of_all(pair)
    pair.redis.kill()
    all_are(pair, "apart")
    assert pair.engine.load() == 2
    pair.engine.script("in=1,out=20")
    for call in running:
        call.hang_up()
    assert [call.answer().status for call in waiting] == [200, 200]
    spent = [c.chat(max_tokens=20) for c in pair.callers("apart") for _ in range(4)]
    assert {answer.status for answer in spent} == {200}
    until(lambda: len(pair.records("apart")) == 8, "the ledger has them")
    pair.engine.script("in=5,out=20,hang@10")
    kept = [caller.start(stream=True) for caller in pair.callers("heavy", "few")]
    until(lambda: pair.engine.load() == 2, "each has its one place")
    more = pair.callers("light", "few")[0].start()
    for _ in range(20):
        assert pair.engine.load() == 2
    pair.redis.start()
    all_are(pair, "shared")
    until(lambda: pair.open_reservations("heavy") == 2, "what runs is everybody's to know")
    assert pair.engine.load() == 2
    pair.engine.script("in=1,out=20")
    for call in kept:
        call.hang_up()
    assert more.answer().status == 200
    here, there = pair.callers("apart")
    while here.chat(max_tokens=20).status == 200:
        pass
    refused = there.chat(max_tokens=20)
    assert (refused.status, refused.code) == (429, "insufficient_quota")
    until(lambda: pair.open_reservations("heavy") == 0, "all came back")
    costs = [record["cost"] for record in pair.records("apart").values() if record["cost"]]
    assert 8 * 21 <= sum(costs) <= 200
