"""Somebody deletes keys on Redis while calls come and go: none fails, and all is right again."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from random import Random
from typing import Any

import pytest

from scheduling.shared.wire import decode
from tests.acceptance.gateway.caller import Answer, Call, Caller
from tests.acceptance.shared.deployment import Deployment
from tests.acceptance.stack import until

TENANT = "forgotten"
ACCOUNT = f"tenant:{TENANT}/daily"
OWN = f"fl:accounts:{{{TENANT}}}:"
# Every kind that the product writes. Some are there for a moment only.
KINDS = {
    "fl:revision",
    "fl:pools",
    "fl:tenants",
    "fl:accounts",
    "fl:cleared",
    "fl:awaited",
    "fl:{few}:pool",
    "fl:{few}:requests",
    "fl:{few}:replicas",
    "fl:{few}:figures",
    "fl:{few}:charged",
    "fl:{few}:shares",
    "fl:{few}:order",
    "fl:{few}:small",
    "fl:{few}:flow",
    "fl:{few}:prefixes",
    "fl:{few}:recent",
    f"{OWN}use",
    f"{OWN}open",
    f"{OWN}window",
    f"{OWN}burst",
    f"{OWN}calls",
    f"{OWN}latest",
    f"{OWN}guessed",
    "fl:replicas:{accounts}:alive",
    "fl:replicas:{accounts}:ending",
    "fl:replicas:{accounts}:loaded",
    "fl:replicas:{accounts}:loading",
    "fl:replicas:{accounts}:seen",
    "fl:replicas:{accounts}:unloads",
}
SELDOM = ("cleared", "awaited", "charged", "guessed", "ending", "loading", "unloads")


def kind(key: str) -> str:
    """Without the names of lane, tenant, endpoint or account in it."""
    return key.partition("|")[0].partition(":tenant:")[0]


class Load:
    """Calls without a pause."""

    def __init__(self, callers: list[Caller]) -> None:
        self.answers: list[Answer] = []
        self._over = threading.Event()
        self._threads = ThreadPoolExecutor(len(callers))
        self._work = [self._threads.submit(self._ask, caller) for caller in callers]

    def _ask(self, caller: Caller) -> None:
        while not self._over.is_set():
            said = {"X-Fairlane-Interaction": f"{caller.port}-{len(self.answers) // 5}"}
            self.answers.append(caller.start(headers=said, max_tokens=10).answer())

    def stop(self) -> None:
        self._over.set()
        self._threads.shutdown()
        for work in self._work:
            work.result()


@pytest.fixture
def long(pair: Deployment) -> Iterator[Call]:
    """Runs throughout, on one of two places."""
    pair.engine.script("in=3,out=10,hang@5")
    made = pair.callers(TENANT, "few")[0].start(stream=True, max_tokens=10)
    made.read_events(3)
    yield made
    made.close()


@pytest.fixture
def load(pair: Deployment, long: Call) -> Iterator[Load]:
    pair.engine.script("in=3,out=10,hold=20ms")
    made = Load([caller for caller in pair.callers(TENANT, "few") for _ in range(3)])
    yield made
    made.stop()


def keys_by_kind(pair: Deployment) -> dict[str, str]:
    with pair.redis.client() as client:
        keys = [key.decode() for key in client.scan_iter("fl:*")]
    here = [key for key in keys if "{few}" in key or OWN in key or "{accounts}" in key]
    here += [key for key in keys if "{" not in key]
    return {kind(key): key for key in here}


def window(pair: Deployment) -> dict[str, Any]:
    with pair.redis.client() as client:
        raw = client.get(f"{OWN}window:{ACCOUNT}")
    return decode(raw)["counters"][-1] if raw else {"used": 0.0, "reserved": 0.0}


def spent(pair: Deployment) -> float:
    return float(sum(record["cost"] for record in pair.records(TENANT).values()))


def test_whichever_key_goes_calls_are_served_places_come_back_and_budgets_are_the_ledgers(
    pair: Deployment, long: Call, load: Load
) -> None:
    often = {each for each in KINDS if not each.endswith(SELDOM)}
    seen: set[str] = set()

    def missing() -> set[str]:
        seen.update(keys_by_kind(pair))
        return often - seen

    until(lambda: not missing(), "all are there")
    assert seen <= KINDS
    order = sorted(KINDS)
    Random(7).shuffle(order)
    both = pair.callers(TENANT, "few")
    for number, each in enumerate(order):
        key = keys_by_kind(pair).get(each, each)
        with pair.redis.client() as client:
            client.delete(key, "fl:cleared", "fl:replicas:{accounts}:unloads")
        assert both[number % 2].chat(max_tokens=10).status == 200, each
        assert pair.engine.load() <= 2, each
    load.stop()
    assert pair.engine.load() == 1, "what ran all the while runs on"
    long.hang_up()
    assert {answer.status for answer in load.answers} == {200}
    until(lambda: pair.open_reservations(TENANT) == 0, "every reservation comes back")
    until(lambda: pair.engine.load() == 0, "the engine is idle")
    with pair.redis.client() as client:
        until(lambda: not client.hlen("fl:{few}:requests"), "every place comes back")
        until(lambda: not client.hlen("fl:accounts"), "for every tenant")
    number = len(load.answers) + len(order) + 1
    until(lambda: len(pair.records(TENANT)) >= number, "the ledger has all that was answered")
    until(lambda: window(pair)["used"] == spent(pair), "the budget is the ledger's")
    assert window(pair)["reserved"] == 0
    assert {caller.chat(max_tokens=10).status for caller in both} == {200}
