"""Engines that fail, hang, break off or are gone: one answer, one record, no slot lost."""

from __future__ import annotations

import json
import os
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from tests.acceptance.gateway.caller import Answer, Caller
from tests.acceptance.gateway.engine import own_engine
from tests.acceptance.gateway.rig import Rig, SimulatedEngine
from tests.acceptance.stack import PATIENCE_S, ROOT, answers, free_port, until


def new(number: int) -> list[dict[str, str]]:
    """A prompt that no endpoint is known to hold."""
    return [{"role": "user", "content": f"prompt {number} {os.urandom(4).hex()}"}]


def ended(rig: Rig, answer: Answer) -> tuple[int, str]:
    row = rig.record(answer)
    return row["status"], row["finish_reason"]


def free_again(rig: Rig, caller: Caller) -> None:
    for engine in rig.engines:
        engine.script()
    assert caller.chat(max_tokens=1).status == 200
    rig.running(caller.tenant, 0)


def test_an_endpoint_that_fails_every_request_is_left_though_its_checks_succeed(rig: Rig) -> None:
    """It fails at once, so that it would be the emptiest and be asked first by all."""
    model = rig.pool(endpoints=[{"url": engine.url} for engine in rig.engines])
    alice = rig.tenant()
    first, second = rig.engines
    first.script("status=500")
    answers = [alice.chat(model=model, messages=new(n), max_tokens=1) for n in range(8)]
    assert {answer.status for answer in answers} == {200}
    assert {rig.record(answer)["endpoint"] for answer in answers} == {second.url}
    assert sum(len(first.seen(answer.id)) for answer in answers) == 5

    def told() -> list[dict[str, Any]]:
        """By each sample that knows the pool, the oldest first."""
        pools = [sample["pools"].get(model) for sample in rig.samples()]
        return [pool["endpoints"][first.url] for pool in pools if pool]

    def endpoint() -> Any:
        return told()[-1]

    until(lambda: any(not each["available"] for each in told()), "the endpoint was out")
    first.script()
    until(lambda: endpoint()["available"], "it is back")
    until(lambda: endpoint()["fingerprint"], "it has told of itself")
    known = endpoint()
    assert known["simulated"] is True
    assert known["version"].endswith("+simulated")
    assert known["fingerprint"]
    assert known["priority_ignored"] is False

    def plain() -> Any:
        return rig.live()["pools"]["plain"]["endpoints"][first.url]

    until(lambda: plain()["priority_ignored"], "lanes differ, and `openai` knows no priority")
    until(lambda: "engine" in endpoint(), "its load is known")


def test_an_endpoint_that_answers_200_with_no_answer_is_left_too(rig: Rig) -> None:
    """As of a proxy before an engine that wants somebody to sign in, but for health checks."""
    with own_engine() as page:
        page.act = lambda asked: asked.whole(200, b"<html>Sign in", content_type="text/html")
        model = rig.pool(endpoints=[{"url": page.url}, {"url": rig.engine.url}])
        alice = rig.tenant()
        answers = [alice.chat(model=model, messages=new(n), max_tokens=1) for n in range(8)]
        assert {answer.status for answer in answers} == {200}
        assert {rig.record(answer)["endpoint"] for answer in answers} == {rig.engine.url}
        assert len(page.paths) >= 5

        def was_out() -> bool:
            pools = [sample["pools"].get(model) for sample in rig.samples()]
            return any(not pool["endpoints"][page.url]["available"] for pool in pools if pool)

        until(was_out, "the endpoint was out")


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("words", ["status=500", "status=503", "status=429", "in=9,out=50,cut@0"])
def test_a_failed_call_is_tried_once_elsewhere_and_recorded_once(
    rig: Rig, words: str, stream: bool
) -> None:
    """R44."""
    model = rig.pool(endpoints=[{"url": engine.url} for engine in rig.engines])
    alice = rig.tenant(limits={"max_running": 2})
    first, second = rig.engines
    first.script(words)
    moved = []
    for number in range(4):
        answer = alice.chat(model=model, messages=new(number), stream=stream, max_tokens=4)
        assert answer.status == 200
        assert rig.record(answer)["endpoint"] == second.url
        assert second.saw(answer.id)
        moved += first.seen(answer.id)
    assert moved
    rig.records(alice.tenant, 4)
    free_again(rig, alice)


class DiesUnasked(BaseHTTPRequestHandler):
    """In good health whenever it is looked at; every call's connection dies without an answer."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def do_POST(self) -> None:
        self.server.asked += 1  # type: ignore[attr-defined]
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close_connection = True

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing to tell."""


@contextmanager
def dying() -> Iterator[ThreadingHTTPServer]:
    with ThreadingHTTPServer(("127.0.0.1", 0), DiesUnasked) as server:
        server.asked = 0  # type: ignore[attr-defined]
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def test_a_connection_that_dies_without_an_answer_is_tried_once_elsewhere(rig: Rig) -> None:
    """`cut` before the first byte: one answer, one record, charged once."""
    with dying() as server:
        ends = [f"http://127.0.0.1:{server.server_port}/v1", rig.engine.url]
        alice = rig.tenant(model=rig.pool(endpoints=[{"url": url} for url in ends]))
        rig.engine.script("in=5,out=5")
        for number in range(6):
            answer = alice.chat(messages=new(number), stream=number % 2 == 0)
            assert answer.status == 200
            row = rig.record(answer)
            assert (row["cost"], row["endpoint"]) == (10, rig.engine.url)
        assert 1 <= server.asked <= 6  # type: ignore[attr-defined]
        rig.records(alice.tenant, 6)
        rig.running(alice.tenant, 0)


def test_a_call_that_fails_everywhere_is_tried_twice_and_costs_nothing(rig: Rig) -> None:
    alice = rig.tenant(limits={"max_running": 1})
    for engine in rig.engines:
        engine.script("status=500")
    answer = alice.chat(model="pair", messages=new(0))
    assert (answer.status, answer.code) == (502, "engine_error")
    assert sum(len(engine.seen(answer.id)) for engine in rig.engines) == 2
    assert ended(rig, answer) == (502, "error")
    assert rig.record(answer)["cost"] == 0
    free_again(rig, alice)


@pytest.mark.parametrize("status", [429, 503])
def test_full_engines_say_when_to_come_back(rig: Rig, status: int) -> None:
    """R13."""
    alice = rig.tenant()
    rig.engine.script(f"status={status},retry-after=7")
    answer = alice.chat()
    assert (answer.status, answer.code) == (503, "overloaded")
    assert answer.headers["retry-after"] == "7"
    assert answer.message.endswith("Come back in 7 s.")
    assert answer.headers["x-fairlane-source"] == "engine"


def test_an_engine_that_finds_fault_with_the_request_says_so_to_the_caller(rig: Rig) -> None:
    alice = rig.tenant()
    rig.engine.script("status=400")
    answer = alice.chat()
    assert (answer.status, answer.code) == (400, "invalid_request")
    assert answer.message == "simulated failure"
    assert rig.record(answer)["cost"] == 0
    for status in (401, 403, 404):  # the pool is set up wrongly, not the call
        rig.engine.script(f"status={status}")
        assert alice.chat().status == 502


@pytest.mark.parametrize("model", ["chat", "plain"])
def test_a_stream_that_breaks_off_ends_with_an_error_event(rig: Rig, model: str) -> None:
    alice = rig.tenant(limits={"max_running": 1})
    rig.engine.script("in=9,out=50,cut@5,gap=1ms")
    answer = alice.chat(model=model, stream=True)
    assert answer.status == 200
    assert answer.code == "engine_error"
    assert b"[DONE]" not in answer.body
    assert ended(rig, answer) == (502, "error")
    row = rig.record(answer)
    assert (row["completion_tokens"], row["usage_source"]) == (5, "counted")
    free_again(rig, alice)


def test_an_engines_own_error_event_is_an_error_on_the_record(rig: Rig) -> None:
    alice = rig.tenant(limits={"max_running": 1})
    rig.engine.script("in=9,out=50,error@5,gap=1ms")
    answer = alice.chat(stream=True)
    assert b"simulated failure" in answer.body
    assert b"[DONE]" not in answer.body
    assert ended(rig, answer) == (502, "error")
    assert rig.record(answer)["completion_tokens"] == 5
    free_again(rig, alice)


def test_an_answer_that_breaks_off_half_way_is_an_error(rig: Rig) -> None:
    alice = rig.tenant(limits={"max_running": 1})
    rig.engine.script("in=9,out=50,cut@5")
    answer = alice.chat()
    assert (answer.status, answer.code) == (502, "engine_error")
    assert ended(rig, answer) == (502, "error")
    free_again(rig, alice)


def test_a_stream_that_breaks_before_its_first_token_is_an_http_error(rig: Rig) -> None:
    alice = rig.tenant(limits={"max_running": 1})
    rig.engine.script("in=9,out=50,cut@0")
    answer = alice.chat(stream=True)
    assert (answer.status, answer.code) == (502, "engine_error")
    assert rig.record(answer)["cost"] == 0
    free_again(rig, alice)


@pytest.mark.parametrize(
    ("limit", "seconds", "words", "stream", "started"),
    [
        ("first_token", 0.4, "hang", True, False),
        ("first_token", 0.4, "hold=600s", True, False),
        ("total", 0.4, "hang", False, False),
        ("idle", 0.4, "out=50,hang@5", True, True),
        ("total", 3, "out=5000,gap=20ms", True, True),
    ],
)
def test_each_time_limit_ends_a_call(
    rig: Rig, limit: str, seconds: float, words: str, stream: bool, started: bool
) -> None:
    others = {"first_token": 300, "idle": 300, "total": 600}
    model = rig.pool(timeouts={**others, limit: seconds})
    alice = rig.tenant(limits={"max_running": 1})
    rig.engine.script(words)
    answer = alice.chat(model=model, stream=stream)
    assert answer.status == (200 if started else 504)
    assert answer.code == "engine_timeout"
    assert f"{seconds:g} s (timeouts.{limit})" in answer.message
    assert b"[DONE]" not in answer.body
    assert ended(rig, answer) == (504, "timeout")
    until(lambda: rig.engine.load() == 0, "the engine was told to stop")
    free_again(rig, alice)


@contextmanager
def killable(port: int, model: str) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "scheduling.simulate.server", "--port", str(port)),
            *("--model", model, "--profile", "fast"),
        ],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        until(lambda: answers(f"http://127.0.0.1:{port}/health"), "the engine answers")
        yield process
    finally:
        process.kill()
        process.wait(PATIENCE_S)


def hangs(port: int) -> None:
    """The next call of this engine does not end by itself."""
    with closing(SimulatedEngine(f"http://127.0.0.1:{port}/v1")) as engine:
        engine.script("out=50,hang@9", times=1)


def test_an_engine_that_dies_takes_its_streams_along_and_comes_back_by_itself(rig: Rig) -> None:
    port = free_port()
    model = rig.pool(endpoints=[{"url": f"http://127.0.0.1:{port}/v1"}])
    alice = rig.tenant(model=model, limits={"max_running": 2})
    with killable(port, model) as process:
        until(lambda: alice.chat().status == 200, "the endpoint is in service")
        hangs(port)
        stream = alice.start(stream=True)
        stream.read_events(5)
        process.kill()
        broken = stream.answer()
        assert b"[DONE]" not in broken.body
        assert json.loads(broken.body.split(b"data: ")[-1])["error"]["code"] == "engine_error"
        assert ended(rig, broken) == (502, "error")
        gone = until(lambda: no_endpoint(alice), "the endpoint is known to be down")
        assert int(gone.headers["retry-after"]) >= 1
    with killable(port, model):
        until(lambda: alice.chat().status == 200, "it is in service again")
    rig.running(alice.tenant, 0)


def no_endpoint(caller: Caller) -> Answer | None:
    answer = caller.chat()
    assert answer.status in (502, 503), answer.body
    return answer if answer.code == "no_endpoint" else None


def test_who_waits_for_an_engine_that_dies_is_answered(rig: Rig) -> None:
    port = free_port()
    model = rig.pool(1, endpoints=[{"url": f"http://127.0.0.1:{port}/v1"}])
    with killable(port, model) as process:
        alice = rig.tenant(model=model)
        until(lambda: alice.chat().status == 200, "the endpoint is in service")
        hangs(port)
        running = alice.start(stream=True)
        running.read_events(2)
        waiting = alice.start(headers={"X-Fairlane-Lane": "urgent"})
        rig.queued(alice.tenant, 1)
        process.kill()
        assert running.answer().status == 200
        answer = waiting.answer()
        assert answer.status in (502, 503)
        assert answer.code in ("no_endpoint", "engine_error")
