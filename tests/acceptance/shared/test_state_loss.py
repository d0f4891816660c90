"""A Redis that comes back empty, and one that comes late."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import psycopg
import pytest

from tests.acceptance.gateway.caller import Caller
from tests.acceptance.shared.deployment import Deployment, two_pools
from tests.acceptance.stack import Stack, answers, engine, free_port, ready, serve, until
from tests.redis_server import RedisServer


def kept_since_all_wait(pair: Deployment) -> bool:
    """Some waited and some ran when counters were kept last."""
    with psycopg.connect(pair.database) as connection:
        rows = connection.execute("SELECT open FROM scheduling_poolcounters WHERE pool = 'few'")
        charged = [c for (opened,) in rows.fetchall() for c in opened.values()]
    return charged.count(0) == 4 and len(charged) == 6


def test_who_had_much_before_the_loss_has_no_head_start_after_it(pair: Deployment) -> None:
    """Heavy has had five thousand units while Light waited: Light's next calls go first."""
    pair.engine.script("in=5,out=20,hang@10")
    holding = [caller.start(stream=True) for caller in pair.callers("bob", "few")]
    until(lambda: pair.engine.load() == 2, "the pool is full")
    heavy, light = (pair.callers(name, "few")[0] for name in ("heavy", "light"))
    big = heavy.start(stream=True)
    until(lambda: pair.open_reservations("heavy") == 1, "it waits")
    waiting = [light.start(stream=True)]
    until(lambda: pair.open_reservations("light") == 1, "so does Light")
    pair.engine.script("in=5000,out=20,hang@10")
    holding.pop().hang_up()
    big.read_events(3)
    waiting += [caller.start() for caller in (heavy, heavy, light, light)]
    until(lambda: pair.open_reservations("light") == 3, "they wait")
    until(lambda: pair.open_reservations("heavy") == 3, "they too")
    pair.engine.script("in=5,out=20,hang@10")
    big.hang_up()
    until(
        lambda: max(r["cost"] for r in [*pair.records("heavy").values(), {"cost": 0}]) >= 5000, ""
    )
    waiting[0].read_events(3)  # Light's first runs
    until(lambda: kept_since_all_wait(pair), "the counters are kept")

    pair.redis.kill()
    for call in waiting[1:]:
        assert call.answer().code == "state_unavailable"
    pair.engine.script("in=5,out=20")
    pair.redis.start()
    for caller in pair.callers("one"):
        until(lambda c=caller: c.chat().status == 200, "it serves again")
    until(lambda: pair.open_reservations("light") == 1, "what runs is there again")
    calls = [light.start() for _ in range(4)]
    until(lambda: pair.open_reservations("light") == 5, "they wait")
    calls += [heavy.start() for _ in range(4)]
    until(lambda: pair.open_reservations("heavy") == 4, "they wait")
    for call in (*holding, waiting[0]):
        call.hang_up()
    ids = [call.answer().id for call in calls]
    order = [seen["headers"]["x-request-id"] for seen in pair.engine.seen(*ids)]
    assert not {*ids[4:]} & {*order[:3]}, "Heavy's came with Light's"


class Early(Stack):
    """It is not ready yet, and answers."""

    def start(self, *options: str) -> None:
        self.port = free_port()
        self.serving = serve(self.folder, self.env, self.port, *options)
        ready(self.serving, self.folder, self.port, "/healthz")


@pytest.fixture
def redis() -> Iterator[RedisServer]:
    """Nobody has started it."""
    server = RedisServer()
    yield server
    server.close()


def test_a_gateway_starts_before_its_redis_and_joins_it(tmp_path: Path, redis: RedisServer) -> None:
    with engine(tmp_path, "few", "--profile", "fast", model="chat") as url:
        closed = {"FAIRLANE_STATE_LOSS": "fail-closed"}
        stack = Early(tmp_path, [url], redis_url=redis.url, settings=closed)
        stack.manage("migrate", "--verbosity", "0")
        stack.apply(two_pools(url, {"alice": {}}))
        key = stack.key("alice")
        stack.start()
        try:
            ready = httpx.get(f"{stack.url}/readyz")
            assert ready.status_code == 503
            assert "the state shared by gateways (REDIS_URL) is out of reach" in ready.text
            until(lambda: answers(f"{stack.url}/login/"), "the console is there")
            caller = Caller(stack.port, "alice", key, "", "chat")
            refused = caller.chat()
            assert (refused.status, refused.code) == (503, "state_unavailable")
            redis.start()
            until(lambda: answers(f"{stack.url}/readyz"), "it has joined")
            assert caller.chat().status == 200
        finally:
            stack.stop()
