"""The load of engines, read from simulated ones; and what `capacity: auto` makes of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import httpx
import pytest

from gateway.policy import scheduler_config
from gateway.upstream import loads
from gateway.upstream.client import EngineClient
from gateway.upstream.loads import LoadWatch
from gateway.upstream.transport import EngineTransport
from scheduling.core.model import Ticket
from scheduling.runtime import LocalScheduler
from tenants.core.snapshot import PolicySnapshot
from tests.fakes import RunningEngine, running_engine
from tests.unit.gateway.cast import snapshot


@dataclass
class Rig:
    """A scheduler whose granted requests run at a simulated engine, and more that always wait."""

    engine: RunningEngine
    policy: PolicySnapshot
    tasks: list[asyncio.Task[None]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.client = EngineClient(EngineTransport())
        self.scheduler = LocalScheduler(scheduler_config(self.policy))
        self.watch = LoadWatch(self.client, lambda pool: [], self.scheduler)
        self.watch.configure(self.policy)

    @property
    def key(self) -> tuple[str, str]:
        return ("chat", self.engine.url)

    def limit(self) -> int:
        found = self.scheduler.live()["pools"]["chat"]["endpoints"][self.engine.url]
        return int(found["max_running"])

    def fill(self, callers: int, tokens: int) -> None:
        self.tasks += [asyncio.create_task(self._call(n, tokens)) for n in range(callers)]

    async def _call(self, caller: int, tokens: int) -> None:
        async with httpx.AsyncClient(timeout=60) as http:
            for turn in range(100_000):
                id = f"{caller}-{turn}"
                ticket = Ticket(id, "chat", "standard", "alice", "", 10.0, 10.0)
                await self.scheduler.acquire(ticket, 600)
                body = {
                    "model": "chat",
                    "messages": [{"role": "user", "content": id}],
                    "max_tokens": tokens,
                    "ignore_eos": True,
                }
                answer = await http.post(f"{self.engine.url}/chat/completions", json=body)
                assert answer.status_code == 200, answer.text
                self.scheduler.settle(id, 10.0)


@asynccontextmanager
async def rig(
    capacity: object = "auto", kind: str = "vllm", **options: object
) -> AsyncIterator[Rig]:
    async with running_engine("demo", models=("chat",), **options) as engine:
        pool = {"engine": kind, "endpoints": [{"url": engine.url}], "capacity": capacity}
        made = Rig(engine, snapshot(pool=pool))
        try:
            yield made
        finally:
            for task in made.tasks:
                task.cancel()
            await asyncio.gather(*made.tasks, return_exceptions=True)
            await made.watch.aclose()
            await made.client.aclose()


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loads, "AUTO_S", 0.03)
    monkeypatch.setattr(loads, "IDLE_S", 0.03)
    monkeypatch.setattr(loads, "SILENT_S", 0.03)


async def test_the_queue_of_an_overloaded_engine_comes_to_stand_in_the_gateway() -> None:
    """It has 16 places; policy says nothing of that."""
    async with rig(speed=8.0) as here:
        assert here.limit() == 16
        here.fill(60, tokens=40)
        await here.engine.until(lambda: here.limit() in (17, 18))
        await here.engine.until(lambda: here.engine.running == 16 and here.engine.waiting <= 3)
        assert here.scheduler.queued("alice") > 30
        live = here.watch.live(here.key)
        assert live["auto"] is True
        assert live["engine"]["running"] <= 16


async def test_it_shrinks_where_others_fill_the_engine() -> None:
    async with rig(speed=8.0) as here:
        body = {"model": "chat", "messages": [{"role": "user", "content": "x"}],
                "max_tokens": 4000, "ignore_eos": True}  # fmt: skip
        async with httpx.AsyncClient(timeout=60) as http:

            async def other() -> None:
                while True:  # one call ends before a busy machine has looked often enough
                    await http.post(f"{here.engine.url}/chat/completions", json=body)

            others = [asyncio.create_task(other()) for _ in range(12)]
            await here.engine.until(lambda: here.engine.running == 12)
            here.fill(40, tokens=40)
            await here.engine.until(lambda: here.limit() <= 8)
            for each in others:
                each.cancel()
            await asyncio.gather(*others, return_exceptions=True)


async def test_what_was_learnt_outlives_a_new_policy_and_engines_without_metrics() -> None:
    async with rig(speed=8.0) as here:
        here.fill(60, tokens=40)
        await here.engine.until(lambda: here.limit() > 16)
        here.watch.configure(here.policy)
        learnt = here.limit()
        assert here.watch.learnt[here.key][0] == learnt
        config = scheduler_config(here.policy, here.watch.learnt)
        [end] = config.pools["chat"].endpoints
        assert end.max_running == learnt
        here.engine.app._routes.pop("/metrics")
        await here.engine.until(lambda: here.watch.live(here.key) == {"auto": True})
        assert here.limit() == here.watch.learnt[here.key][0] >= 16
        fixed = snapshot(pool={"endpoints": [{"url": here.engine.url}]})
        here.watch.configure(fixed)
        assert here.watch.learnt == {}


async def test_a_fixed_capacity_is_left_alone_and_its_engines_load_is_shown() -> None:
    async with rig({"max_running": 4, "max_running_tokens": 1000}, speed=8.0) as here:
        here.fill(20, tokens=40)
        await here.engine.until(lambda: here.watch.live(here.key).get("engine", {}).get("running"))
        assert here.limit() == 4
        assert here.watch.live(here.key)["engine"].keys() >= {"running", "waiting", "memory"}


async def test_an_engine_that_says_it_is_full_takes_less() -> None:
    async with rig() as here:
        tickets = [Ticket(f"r{n}", "chat", "standard", "alice", "", 1.0, 1.0) for n in range(9)]
        for ticket in tickets:
            await here.scheduler.acquire(ticket, 5)
        await here.engine.until(lambda: "engine" in here.watch.live(here.key))
        here.watch.refused(here.key)
        assert here.limit() == 8
        here.watch.refused(("chat", "http://nowhere/v1"))


async def test_kinds_that_tell_nothing_are_not_asked() -> None:
    async with rig(kind="openai") as here:
        assert here.watch.live(here.key) == {"auto": True}
        await here.scheduler.acquire(Ticket("r", "chat", "standard", "alice", "", 1.0, 1.0), 5)
        here.watch.refused(here.key)
        assert here.limit() == 16, "it could never grow again"
        assert not [t for t in asyncio.all_tasks() if t.get_name() == f"load {here.engine.url}"]
