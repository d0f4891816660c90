"""A rolling restart: gateways are stopped and started in turn, and no call fails by it."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from tests.acceptance.gateway.caller import Answer
from tests.acceptance.shared.deployment import Deployment
from tests.acceptance.shared.door import KeptCaller, door, opens
from tests.acceptance.stack import Stack, until

CALLERS = 4


@pytest.fixture(scope="module")
def console(running: Deployment, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    first = running.gateways[0]
    made = Stack(
        tmp_path_factory.mktemp("console"), redis_url=first.redis_url, settings=first.settings
    )
    made.start("--role", "console")
    yield made
    if made.serving is not None:
        made.stop()


class Load:
    """Streamed and plain calls without a pause, each caller on a connection that it keeps."""

    def __init__(self, ports: list[int], key: str) -> None:
        self.answers: list[Answer] = []
        self._over = threading.Event()
        self._pool = ThreadPoolExecutor(CALLERS)
        self._work = [self._pool.submit(self._ask, ports, key, n) for n in range(CALLERS)]

    def _ask(self, ports: list[int], key: str, number: int) -> None:
        with closing(KeptCaller(ports, key, number)) as caller:
            while not self._over.is_set():
                self.answers.append(caller.chat(stream=number % 2 == 1, max_tokens=20))

    def goes_on(self) -> None:
        before = len(self.answers)
        until(lambda: self._failed() or len(self.answers) >= before + 3 * CALLERS, "calls end")
        assert not self._failed()

    def _failed(self) -> list[BaseException]:
        return [error for each in self._work if each.done() and (error := each.exception())]

    def close(self) -> None:
        self._over.set()
        self._pool.shutdown()
        assert not self._failed()


def test_gateways_restart_in_turn_and_the_console_goes_under_load_and_no_call_fails(
    pair: Deployment, console: Stack, tmp_path: Path
) -> None:
    pair.engine.script("in=5,out=20,gap=10ms")
    ports = [each.port for each in pair.gateways]
    with (
        door(tmp_path, ports, console.port) as doors,
        closing(Load(doors, pair.keys["heavy"])) as load,
    ):
        for gateway in pair.gateways:
            load.goes_on()
            assert gateway.stop() == 0
            load.goes_on()
            gateway.start("--role", "gateway")
        assert console.stop() == 0
        load.goes_on()
    assert {answer.status for answer in load.answers} == {200}
    assert all(answer.done for answer in load.answers if answer.streamed)
    ids = {answer.id for answer in load.answers}
    assert len(ids) == len(load.answers)
    until(lambda: ids <= pair.records("heavy").keys(), "all are recorded")


def test_a_gateway_that_stops_ends_what_it_began_and_serves_a_kept_connection_once_more(
    pair: Deployment,
) -> None:
    stopping = pair.gateways[1]
    assert stopping.serving is not None
    with closing(KeptCaller([stopping.port], pair.keys["light"])) as kept:
        assert "connection" not in kept.chat().headers
        pair.engine.script("in=5,out=20,wait@5")
        running = pair.callers("light")[1].start(stream=True)
        running.read_events(2)
        stopping.serving.send_signal(signal.SIGTERM)
        until(lambda: not opens(stopping.port), "nobody new is let in")
        pair.engine.script("in=5,out=20")
        last = kept.chat()
        assert (last.status, last.headers["connection"]) == (200, "close")
    assert running.answer().done
    assert stopping.ended() == 0
    stopping.start("--role", "gateway")
