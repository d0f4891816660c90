"""Several gateways as a company runs them: `serve --role gateway` processes on one PostgreSQL and
one Redis, before one simulated engine."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import yaml

from metering.shared import wire
from tests.acceptance.gateway.caller import Caller
from tests.acceptance.gateway.rig import HOURS_S, SimulatedEngine, pool
from tests.acceptance.stack import ROOT, Stack, engine, until
from tests.calm import calm_zone
from tests.env import start_postgres
from tests.redis_server import RedisServer, redis_server

SETUP = """
import os, sys, django
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "fairlane.settings")
django.setup()
from django.core.management import call_command
call_command("migrate", verbosity=0, stdout=sys.stderr)
call_command("policy", "apply", "-", stdout=sys.stderr)
for tenant in sys.argv[1:]:
    call_command("keys", "create", tenant=tenant, json=True)
"""


def policy(url: str, tenants: dict[str, dict[str, Any]], **pools: int) -> dict[str, Any]:
    lane = {"name": "normal", "rank": 0, "engine_priority": 1, "max_queue_seconds": HOURS_S}
    zone = calm_zone()
    return {
        "version": 1,
        "lanes": [lane],
        "tiers": [{"name": "open", "lane": "normal", "allowed_lanes": ["normal"]}],
        "pools": [pool(name, [url], most) for name, most in pools.items()],
        "tenants": [
            {"name": name, "tier": "open", "timezone": zone, **fields}
            for name, fields in tenants.items()
        ],
    }


@dataclass
class Deployment:
    engine: SimulatedEngine
    redis: RedisServer
    database: str
    gateways: list[Stack]
    keys: dict[str, str]

    def callers(self, tenant: str, model: str = "chat") -> list[Caller]:
        """One at each gateway."""
        return [Caller(each.port, tenant, self.keys[tenant], "", model) for each in self.gateways]

    def records(self, tenant: str) -> dict[str, dict[str, Any]]:
        columns = ("request_id", "status", "usage_source", "finish_reason", "cost")
        with psycopg.connect(self.database) as connection:
            rows = connection.execute(
                f"SELECT {', '.join(columns)} FROM metering_usagerow WHERE tenant = %s", [tenant]
            ).fetchall()
        return {row[0]: dict(zip(columns, row, strict=True)) for row in rows}

    def open_reservations(self, tenant: str) -> int:
        with self.redis.client() as client:
            return int(client.hlen(f"fl:accounts:{{{tenant}}}:open"))

    def known_to_run(self, tenant: str) -> int:
        """Of those, what gateways have told each other that an engine was asked for."""
        with self.redis.client() as client:
            found = client.hvals(f"fl:accounts:{{{tenant}}}:open")
        return sum("entry" in wire.decode(one) for one in found)


def two_pools(url: str, tenants: dict[str, dict[str, Any]]) -> dict[str, Any]:
    return policy(url, tenants, chat=64, few=2)


@contextmanager
def deployment(
    folder: Path,
    tenants: dict[str, dict[str, Any]],
    gateways: int = 2,
    *,
    document: Callable[[str, dict[str, dict[str, Any]]], dict[str, Any]] = two_pools,
    profile: str = "fast",
    alone: bool = False,
    **settings: str,
) -> Iterator[Deployment]:
    """`alone`: each gateway for itself, without Redis. `profile`: the engine's."""
    with ExitStack() as stopping:
        redis = stopping.enter_context(redis_server())
        store = tempfile.mkdtemp(prefix="fairlane-shared-")  # where PostgreSQL's own user may look
        stopping.callback(shutil.rmtree, store, ignore_errors=True)
        database = start_postgres(Path(store) / "postgres")
        url = stopping.enter_context(engine(folder, "few", "--profile", profile, model="chat"))
        made = []
        for number in range(gateways):
            own = folder / f"gateway-{number}"
            own.mkdir()
            given = {"DATABASE_URL": database, **settings}
            made.append(Stack(own, [url], redis_url="" if alone else redis.url, settings=given))
        keys = _set_up(made[0], document(url, tenants), list(tenants))
        simulated = SimulatedEngine(url)
        stopping.callback(simulated.close)
        for each in made:
            each.start("--role", "gateway")
            stopping.callback(lambda each=each: each.serving and each.stop())
        found = Deployment(simulated, redis, database, made, keys)
        yield found


def _set_up(stack: Stack, document: dict[str, Any], tenants: list[str]) -> dict[str, str]:
    done = subprocess.run(
        [sys.executable, "-c", SETUP, *tenants],
        cwd=ROOT,
        env=stack.env,
        input=yaml.safe_dump(document),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    made = [json.loads(part)["key"] for part in done.stdout.replace("}\n{", "}\0{").split("\0")]
    return dict(zip(tenants, made, strict=True))


__all__ = ["Deployment", "deployment", "until"]
