"""Three gateways on one PostgreSQL and one Redis for a trial, and what can be done to them."""

from __future__ import annotations

import json
import secrets
import signal
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import psycopg

from tests.acceptance.stack import PATIENCE_S, free_port, until
from tests.postgres_server import PostgresServer, postgres_server
from tests.redis_server import RedisServer, redis_server
from tests.trials.product import Books, Product, env, prepare, state_of, stub

GATEWAYS = 3
PREPARED = "prepared"
NEWEST = (
    "SELECT DISTINCT ON (gateway) at, state FROM metering_gatewaysample ORDER BY gateway, at DESC"
)
YOUNG_S = 3.0  # a gateway writes a sample a second


@dataclass(kw_only=True)
class Replicas(Books):
    gateways: list[Product]
    redis: RedisServer
    postgres: PostgresServer

    def live(self) -> dict[str, Any]:
        """What the gateways that are alive tell, as one: of what is shared one of them tells."""
        samples = until(self._samples, "a sample of each gateway")
        told: dict[str, Any] = {"at": min(s["at"] for s in samples), "pools": {}, "tenants": {}}
        for sample in samples:
            told["pools"] |= sample["pools"]
            told["tenants"] |= {n: t for n, t in sample["tenants"].items() if "budgets" in t}
        return told

    def _samples(self) -> list[dict[str, Any]]:
        rows = self.select(NEWEST)
        newest = max((row["at"] for row in rows), default=None)
        young = [r for r in rows if (newest - r["at"]).total_seconds() < YOUNG_S]
        return [state_of(r) for r in young] if len(young) == len(self.gateways) else []

    def open_reservations(self) -> int:
        with self.redis.client() as client:
            names = client.keys("fl:accounts:{*}:open")
            return sum(int(client.hlen(name)) for name in names)

    def told(self, event: str, *of: int) -> list[float]:
        """The moments at which gateways (all, or those of these numbers) logged it."""
        found = []
        for number in of or range(len(self.gateways)):
            for line in (self.gateways[number].folder / "serve.log").read_text().splitlines():
                if line.startswith("{") and (entry := json.loads(line))["event"] == event:
                    found.append(datetime.fromisoformat(entry["timestamp"]).timestamp())
        return sorted(found)

    def signal(self, number: int, what: signal.Signals) -> None:
        process = self.gateways[number].process
        assert process is not None
        process.send_signal(what)

    def kill(self, number: int) -> None:
        self.signal(number, signal.SIGKILL)
        process = self.gateways[number].process
        assert process is not None
        process.wait(PATIENCE_S)


@dataclass(frozen=True)
class Ground:
    """What all rows stand on: a stub, a PostgreSQL, and a database with the policy and the keys of
    which each takes a copy."""

    stub_port: int
    postgres: PostgresServer
    keys: dict[str, str]

    def new_database(self) -> str:
        name = f"trial_{secrets.token_hex(4)}"
        with psycopg.connect(self.postgres.url, autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name} TEMPLATE {PREPARED}".encode())
        return at(self.postgres, name)


def at(postgres: PostgresServer, name: str) -> str:
    head, question, tail = postgres.url.partition("?")
    return f"{head.rpartition('/')[0]}/{name}{question}{tail}"


@contextmanager
def ground(made: Callable[[int], dict[str, Any]], tenants: Iterable[str]) -> Iterator[Ground]:
    with (
        stub() as port,
        postgres_server() as postgres,
        tempfile.TemporaryDirectory(prefix="fairlane-trial-") as folder,
    ):
        with psycopg.connect(postgres.url, autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {PREPARED}".encode())
        owners: dict[str, list[dict[str, Any]]] = {name: [] for name in tenants}
        keys = prepare(env(Path(folder), at(postgres, PREPARED)), made(port), owners)
        yield Ground(port, postgres, keys)


@contextmanager
def replicas(on: Ground, folder: Path, state_loss: str) -> Iterator[Replicas]:
    with redis_server() as redis:
        database = on.new_database()
        settings = {
            "REDIS_URL": redis.url,
            "FAIRLANE_STATE_LOSS": state_loss,
            "FAIRLANE_LOG": "json",
        }
        gateways = []
        for number in range(GATEWAYS):
            own = folder / f"gateway-{number}"
            own.mkdir()
            given = (own, on.stub_port, on.keys, database, settings)
            gateways.append(Product(*given, port=free_port()))
        given = (folder, on.stub_port, on.keys, database, settings)
        running = Replicas(*given, gateways=gateways, redis=redis, postgres=on.postgres)
        try:
            for gateway in gateways:
                gateway.launch()
            for gateway in gateways:
                gateway.await_ready()
            yield running
        finally:
            _stop(gateways)


def _stop(gateways: list[Product]) -> None:
    processes = [g.process for g in gateways if g.process and g.process.poll() is None]
    for process in processes:
        process.send_signal(signal.SIGCONT)
        process.terminate()
    for process in processes:
        process.wait(PATIENCE_S)
