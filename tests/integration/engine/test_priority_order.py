"""An engine that takes priorities and serves in the order of arrival is found out, by its order."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from gateway.upstream import order
from gateway.upstream.client import EngineClient
from gateway.upstream.engines import Engines
from gateway.upstream.transport import EngineTransport
from scheduling.simulate.profile import load
from tests.fakes import running_engine
from tests.unit.gateway.cast import snapshot
from tests.unit.gateway.world import World

TWO_AT_ONCE = msgspec.structs.replace(load("fast"), max_num_seqs=2)


@pytest.mark.parametrize(("policy", "ignored"), [("fcfs", True), ("priority", False)])
async def test_the_order_in_which_streams_begin_tells(
    policy: str, ignored: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(order, "PATIENCE_S", 0.01)
    async with running_engine(TWO_AT_ONCE, models=("chat",), policy=policy) as engine:
        capacity = {"max_running": 64, "max_running_tokens": 100_000}  # so that the engine queues
        given = snapshot(
            pool={"endpoints": [{"url": engine.url}], "capacity": capacity},
            lane={"engine_priority": 20},
        )
        world = World(given)
        client = EngineClient(EngineTransport())
        engines = Engines(client, b"salt", lambda *_: True, lambda *_: None)
        world.calls._engines = engines
        asked = {"stream": True, "max_tokens": 100, "ignore_eos": True}

        def told() -> bool:
            return engines.ignores_priority(given.pools["chat"], engine.url) is ignored

        for turn in range(30):  # on a busy machine nothing may wait in the engine in some of them
            if turn >= 3 and told():
                break
            bulk = [world.call(user=f"{turn}-{n}", **asked) for n in range(8)]
            await engine.until(lambda turn=turn: len(engine.requests) == 11 * turn + 8)
            urgent = [world.call(key="bot", **asked) for _ in range(3)]
            await asyncio.gather(*(caller.end() for caller in bulk + urgent))
            assert {caller.status for caller in bulk + urgent} == {200}
        assert told()
        await client.aclose()
