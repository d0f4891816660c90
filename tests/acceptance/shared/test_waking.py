"""Three gateways, of which one is stopped at the worst moment, and wakes or dies."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

from metering.shared import wire
from tests.acceptance.gateway.caller import Call
from tests.acceptance.shared.deployment import Deployment, deployment
from tests.acceptance.shared.test_paused import place, send
from tests.acceptance.stack import until

LEASE_S = 5.0
MEMBERS, REPLICAS = "fl:replicas:{accounts}:alive", "fl:{few}:replicas"
BUDGET = {"name": "daily", "kind": "sustained", "cost": 100_000, "period": "day"}


@pytest.fixture(scope="module")
def trio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    folder = tmp_path_factory.mktemp("trio")
    closed = {"FAIRLANE_STATE_LOSS": "fail-closed"}
    with deployment(folder, {"alice": {"budgets": [BUDGET]}, "bob": {}}, 3, **closed) as started:
        yield started


def registered(trio: Deployment) -> dict[str, float]:
    """In the pool of two places: until when each gateway's lease is."""
    with trio.redis.client() as client:
        return dict(client.zrange(REPLICAS, 0, -1, withscores=True))


def test_an_empty_redis_gives_nothing_away_that_a_stopped_gateway_runs(trio: Deployment) -> None:
    """It is stopped for some two seconds. A place that is given twice stays so: calls hang."""
    trio.engine.script("in=1,out=20,hang@10")
    *others, there = trio.callers("bob", "few")
    held = [place(there) for _ in range(2)]
    until(lambda: trio.engine.load() == 2, "both places are taken")
    until(lambda: len(registered(trio)) == 3, "all are there")
    began = time.monotonic()
    send(trio.gateways[2], signal.SIGSTOP)
    trio.redis.kill()
    trio.redis.start()
    asked = [caller.start(stream=True) for caller in others]
    first = until(lambda: len(now := registered(trio)) == 2 and now, "the others are back")
    renewed = max(first.values()) + 1
    until(lambda: min(registered(trio).values()) > renewed, "they have had time to let some in")
    most, slept = trio.engine.load(), time.monotonic() - began
    send(trio.gateways[2], signal.SIGCONT)
    until(lambda: trio.open_reservations("bob") >= 2, "what it runs is there again")
    most = max(most, *(trio.engine.load() for _ in range(20)))
    if slept < LEASE_S - 1:  # else this machine is slow, and its places may be others'
        assert most == 2
    trio.engine.script("in=1,out=20")
    for call in (*held, *asked):
        call.hang_up()
    until(lambda: trio.open_reservations("bob") == 0, "all came back")
    for caller in (*others, there):
        until(lambda c=caller: c.chat().status == 200, "it serves again")
    until(lambda: trio.engine.load() == 0, "nothing runs")


def reaped(trio: Deployment) -> None:
    """What the third gateway was is over, as others see it."""
    mine = {"alive": MEMBERS, "few": REPLICAS, "chat": "fl:{chat}:replicas"}
    with trio.redis.client() as client:
        names = {key: client.zrange(key, 0, -1) for key in mine.values()}
        name = f":{trio.gateways[2].serving.pid}-".encode()  # type: ignore[union-attr]
        theirs = {key: [n for n in found if name in n] for key, found in names.items()}
        for key, found in theirs.items():
            for each in found:
                client.zadd(key, {each: 0})
        until(
            lambda: not any(client.zscore(k, n) for k, found in theirs.items() for n in found),
            "they have reaped it",
        )


def spent(trio: Deployment) -> list[float]:
    """Of Alice's budget: what is used and what is reserved, as the gateways have it."""
    with trio.redis.client() as client:
        raw: Any = client.get("fl:accounts:{alice}:window:tenant:alice/daily")
    [counter] = wire.decode(raw)["counters"]
    return [counter["used"], counter["reserved"]]


WOKEN: dict[str, Callable[[Deployment], object]] = {
    "as it has registered": lambda trio: len(registered(trio)) == 3,
    "as it has taken something": lambda trio: trio.open_reservations("alice"),
}


@pytest.mark.parametrize("when", WOKEN)
def test_killed_as_it_wakes_after_its_lease_a_gateway_leaves_nothing_behind(
    trio: Deployment, when: str
) -> None:
    victim, caller = trio.gateways[2], trio.callers("alice", "few")[2]
    trio.engine.script("in=1,out=20,hang@10")
    calls: list[Call] = [place(caller)]
    send(victim, signal.SIGSTOP)
    reaped(trio)
    until(lambda: trio.open_reservations("alice") == 0, "what it held has ended")
    calls += [caller.start(stream=True) for _ in range(8)]  # they lie in its socket
    send(victim, signal.SIGCONT)
    for _ in range(5_000):  # without a pause: the moment is short
        if WOKEN[when](trio):
            break
    send(victim, signal.SIGKILL)
    assert victim.serving is not None
    victim.serving.wait()
    for call in calls:
        with suppress(OSError):
            call.close()
    trio.engine.script("in=1,out=20")
    reaped(trio)
    until(lambda: trio.open_reservations("alice") == 0, "no reservation is left")
    until(lambda: len(registered(trio)) == 2, "nor its registration")
    victim.serving = None
    victim.start("--role", "gateway")
    for each in trio.callers("alice", "few"):
        until(lambda c=each: c.chat().status == 200, "every place is there")
    until(
        lambda: spent(trio) == [sum(r["cost"] for r in trio.records("alice").values()), 0],
        "the budget is the ledger's",
    )
