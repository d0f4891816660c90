"""`serve --workers 2`: two gateway processes behind one door that never shuts while one is left."""

from __future__ import annotations

import re
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import psutil
import pytest

from tests.acceptance.stack import PATIENCE_S, Stack, demo_policy, engine, until
from tests.redis_server import redis_server


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """Of both tests; the last one stops it."""
    folder: Path = tmp_path_factory.mktemp("workers")
    with redis_server() as redis, engine(folder, "--profile", "fast") as url:
        made = Stack(folder, [url], redis_url=redis.url)
        made.manage("migrate", "--verbosity", "0")
        made.apply(demo_policy([url]))
        made.start("--workers", "2")
        try:
            yield made
        finally:
            if made.serving is not None:
                made.stop()


def ask(served: Stack, key: str) -> httpx.Response:
    """On a connection of its own, so that any worker may take it."""
    return httpx.post(
        f"{served.url}/v1/completions",
        headers={"Authorization": f"Bearer {key}"},
        json={"model": "demo-chat", "prompt": "Hello", "max_tokens": 3},
        timeout=PATIENCE_S,
    )


def workers_told(served: Stack) -> set[str]:
    text = httpx.get(f"{served.url}/metrics", timeout=PATIENCE_S).text
    return set(re.findall(r'fairlane_policy_revision\{worker="(\d)"\}', text))


def answered(served: Stack) -> float:
    text = httpx.get(f"{served.url}/metrics", timeout=PATIENCE_S).text
    found = re.findall(r'^fairlane_requests_total\{.*outcome="ok".*\} (\S+)$', text, re.MULTILINE)
    return sum(map(float, found))


def gateways(served: Stack) -> list[psutil.Process]:
    assert served.serving is not None
    children = psutil.Process(served.serving.pid).children()
    return [child for child in children if "--own-door" in child.cmdline()]


@contextmanager
def load(served: Stack, key: str) -> Iterator[list[int]]:
    """One call after another; their statuses. A call that is cut off with its worker is none."""
    statuses: list[int] = []
    stop = threading.Event()

    def work() -> None:
        while not stop.is_set():
            try:
                statuses.append(ask(served, key).status_code)
            except (httpx.ReadError, httpx.WriteError, httpx.RemoteProtocolError):
                continue  # it ran on the worker that was killed; to be refused is another error

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    try:
        yield statuses
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def test_one_door_for_all_and_nobody_is_refused_while_a_worker_comes_back(served: Stack) -> None:
    until(lambda: workers_told(served) == {"0", "1"}, "a scrape tells of both")
    key = served.key("acme")
    before = gateways(served)
    with load(served, key) as statuses:
        until(lambda: len(statuses) >= 20, "the load runs")
        before[0].kill()
        seen = len(statuses)
        until(lambda: len(statuses) >= seen + 20, "the other one goes on")
        until(lambda: set(gateways(served)) != set(before), "another takes its place")
        until(lambda: workers_told(served) == {"0", "1"}, "and answers")
    assert set(statuses) == {200}
    until(lambda: answered(served) > 0, "the workers' counts are one exposition's")


def test_a_stop_under_load_fails_no_call(served: Stack) -> None:
    until(lambda: workers_told(served) == {"0", "1"}, "both are there")
    key = served.key("acme")
    statuses: list[int] = []

    def work() -> None:
        while True:
            try:
                statuses.append(ask(served, key).status_code)
            except httpx.ConnectError:
                return  # the door is shut

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    until(lambda: len(statuses) >= 20, "the load runs")
    status = served.stop(signal.SIGTERM)
    for thread in threads:
        thread.join()
    assert (status, set(statuses)) == (0, {200})
