"""Stopping and dying under load: what was answered is on the record, once, and nothing stays."""

from __future__ import annotations

import http.client
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from tests.acceptance.gateway.caller import Answer, Call, Caller
from tests.acceptance.gateway.rig import Rig, rows_where
from tests.acceptance.gateway.rig import rig as started
from tests.acceptance.stack import PATIENCE_S, alive, until
from tests.acceptance.stack import answers as answers_to

BROKEN = (OSError, http.client.HTTPException)
DAILY = [{"name": "daily", "kind": "sustained", "cost": 1e9, "period": "month"}]


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    """A product of these tests' own, since they end it."""
    folder: Path = tmp_path_factory.mktemp("stops")
    with started(folder, engines=1) as running:
        yield running


@pytest.fixture
def rig(own: Rig) -> Rig:
    own.engine.script()
    own.idle()
    if own.stack.serving is None:
        own.stack.start()
    return own


def processes(rig: Rig) -> list[psutil.Process]:
    """`serve` and all that it has started."""
    assert rig.stack.serving is not None
    serve = psutil.Process(rig.stack.serving.pid)
    until(lambda: serve.children(recursive=True), "the worker runs")
    return [serve, *serve.children(recursive=True)]


def gone(found: list[psutil.Process]) -> None:
    until(lambda: not any(map(alive, found)), "no process of it is left")


@contextmanager
def load(caller: Caller, threads: int) -> Iterator[list[Answer]]:
    """Calls one after another, streamed and not, until the server is gone."""
    answers: list[Answer] = []
    stop = threading.Event()

    def work(stream: bool) -> None:
        while not stop.is_set():
            try:
                answer = caller.chat(stream=stream, max_tokens=6)
            except BROKEN:
                return
            if answer.status == 200 and (answer.done or not stream):
                answers.append(answer)

    with ThreadPoolExecutor(threads) as pool:
        working = [pool.submit(work, number % 2 == 1) for number in range(threads)]
        try:
            yield answers
        finally:
            stop.set()
            for each in working:
                each.result()


def broke_off(call: Call) -> bool:
    try:
        return not call.answer().done
    except BROKEN:
        return True


def test_a_stop_lets_running_calls_finish_and_writes_every_record(rig: Rig) -> None:
    """D17."""
    alice = rig.tenant(limits={"max_running": 8})
    rig.engine.script("in=5,out=40,wait@5")
    calls = [alice.start(stream=True) for _ in range(12)]
    for call in calls[:8]:
        call.read_events(2)
    rig.queued(alice.tenant, 4)
    found = processes(rig)
    found[0].send_signal(signal.SIGTERM)
    until(lambda: not answers_to(f"{rig.stack.url}/readyz"), "it stops")
    rig.engine.script("in=5,out=40")
    assert rig.stack.ended() == 0
    answers = [call.answer() for call in calls]
    assert all(answer.done for answer in answers)
    gone(found)
    rows = {row["request_id"]: row for row in rig.rows(alice.tenant)}
    assert set(rows) == {answer.id for answer in answers}
    assert {row["cost"] for row in rows.values()} == {45}
    journal = rig.stack.folder / "journal"
    assert list(journal.glob("*")) == []
    with pytest.raises(ConnectionRefusedError):
        alice.chat()


def test_a_stop_does_not_wait_for_ever(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    alice = rig.tenant(limits={"max_running": 1})
    rig.stack.stop()
    monkeypatch.setenv("FAIRLANE_DRAIN_SECONDS", "1")
    rig.stack.start()
    rig.engine.script("in=5,out=500,hang@5", times=1)
    running = alice.start(stream=True)
    running.read_events(5)
    waiting = alice.start()
    rig.queued(alice.tenant, 1)
    assert rig.stack.stop(signal.SIGTERM) == 0
    cut_off = running.answer()
    assert (cut_off.status, cut_off.code) == (200, "overloaded")
    assert b"[DONE]" not in cut_off.body
    turned_away = waiting.answer()
    assert turned_away.status == 503
    assert int(turned_away.headers["retry-after"]) >= 1
    first, second = rig.rows(alice.tenant)
    assert (second["status"], second["cost"]) == (503, 0)
    assert (first["finish_reason"], first["prompt_tokens"]) == ("error", 5)
    assert first["completion_tokens"] == 5


def test_what_was_used_is_known_after_a_restart(rig: Rig) -> None:
    limits = {"requests_per_minute": 5, "tokens_per_minute": 10_000}
    budgets = [{"name": "daily", "kind": "sustained", "cost": 30, "period": "month"}]
    alice = rig.tenant(limits=limits)
    bob = rig.tenant(budgets=budgets)
    rig.engine.script("in=5,out=5")
    began = time.monotonic()
    for _ in range(3):
        assert alice.chat(max_tokens=5).status == 200
        assert bob.chat(max_tokens=5).status == 200
    rig.stack.stop()
    rig.stack.start()
    assert bob.chat(max_tokens=5).code == "insufficient_quota"
    left = alice.chat(max_tokens=5).headers["x-ratelimit-remaining-requests"]
    if time.monotonic() - began < 60:  # else this machine is slow, and the minute is over
        assert left == "1"


def test_killed_under_load_three_times_nothing_is_lost_and_nothing_doubled(rig: Rig) -> None:
    alice = rig.tenant(budgets=DAILY)
    finished: list[Answer] = []
    open_calls: list[Call] = []
    for turn in range(3):
        rig.engine.script("in=5,out=3000,gap=50ms", times=2)
        held = [alice.start(stream=True) for _ in range(2)]
        for call in held:
            call.read_events(3)
        with load(alice, 4) as answers:
            until(lambda a=answers, n=10 + 7 * turn: len(a) >= n, "the load runs")
            found = processes(rig)
            os.kill(found[0].pid, signal.SIGKILL)
            assert rig.stack.serving is not None
            rig.stack.serving.wait(PATIENCE_S)
            rig.stack.serving = None
        gone(found)
        until(lambda: rig.engine.load() == 0, "the engine has stopped")
        assert all(broke_off(call) for call in held)
        finished += answers
        open_calls += held
        rig.stack.start()
    rows = rig.rows(alice.tenant)
    times = Counter(row["request_id"] for row in rows)
    assert set(times.values()) == {1}
    assert {answer.id for answer in finished} <= set(times)
    by_id = {row["request_id"]: row for row in rows}
    assert {by_id[answer.id]["status"] for answer in finished} == {200}
    abandoned = [row for row in rows if row["throttle_reason"] == "gateway_restart"]
    assert {call.response.getheader("x-request-id") for call in open_calls} <= {
        row["request_id"] for row in abandoned
    }
    assert {row["usage_source"] for row in abandoned} == {"estimated"}
    assert {row["finish_reason"] for row in abandoned} == {"error"}
    reached = {call["headers"]["x-request-id"] for call in rig.engine.seen()}
    assert reached <= {row["request_id"] for row in rows_where(rig.stack.folder, "true")}
    cost = sum(row["cost"] for row in rows)
    assert rig.window(f"tenant:{alice.tenant}/daily") == pytest.approx(cost)

    def counted() -> list[tuple[float, float]]:
        """As the newest sample tells; the first ones may be of the process that was killed."""
        return [(each["used"], each["reserved"]) for each in rig.use(alice.tenant)["budgets"]]

    until(lambda: counted() == [(pytest.approx(cost), 0)], "it counts on from the ledger")
    assert alice.chat().status == 200
