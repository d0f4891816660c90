"""What the tests of this folder share: one running product.

A test makes a tenant of its own through the admin API, so that no test meets another's counters.
"""

from __future__ import annotations

import itertools
import json
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import httpx
import yaml

from tests.acceptance.gateway.caller import Answer, Caller
from tests.acceptance.stack import PATIENCE_S, ROOT, Stack, engine, until
from tests.calm import calm_zone

MODELS = ("chat", "two", "pair", "plain")
FRESH = tuple(f"fresh-{number}" for number in range(150))  # for pools that a test makes
# Calls hang and wait for as long as a test takes, which is long on a machine that is busy.
HOURS_S = 10_000
PATIENT = {"connect": HOURS_S, "first_token": HOURS_S, "idle": HOURS_S, "total": HOURS_S}
LANES = [
    {"max_queue_seconds": HOURS_S, **lane}
    for lane in (
        {"name": "urgent", "rank": 0, "engine_priority": 1, "reserved_share": 0.3},
        {"name": "normal", "rank": 1, "engine_priority": 11, "reserved_share": 0.2},
        {"name": "brief", "rank": 2, "engine_priority": 16, "max_queue_seconds": 0.3},
        {"name": "batch", "rank": 3, "engine_priority": 21, "reserved_share": 0.1},
    )
]
SETUP = """
import os, sys, django
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "fairlane.settings")
django.setup()
from django.core.management import call_command
call_command("migrate", verbosity=0)
call_command("policy", "apply", "-", stdout=sys.stderr)
call_command("users", "create", username="root", role="admin", json=True)
"""


def pool(model: str, ends: list[str], most: int, **more: Any) -> dict[str, Any]:
    return {
        "model": model,
        "endpoints": [{"url": url} for url in ends],
        "capacity": {"max_running": most, "max_running_tokens": 1_000_000},
        "cost": {"input": 1, "cached_input": 1, "output": 1},
        "timeouts": dict(PATIENT),  # one for two pools would be an alias of YAML, which is refused
        **more,
    }


def policy(urls: list[str]) -> dict[str, Any]:
    """Pools that differ in what the cases need; cost is 1 a token everywhere."""

    first = urls[:1]
    return {
        "version": 1,
        "lanes": LANES,
        "tiers": [
            {
                "name": "open",
                "lane": "normal",
                "allowed_lanes": [str(lane["name"]) for lane in LANES],
            }
        ],
        "pools": [
            pool("chat", first, 64, aliases=["gpt-4o-mini"]),
            pool("two", first, 2),
            pool("pair", urls, 32),
            pool("plain", first, 64, engine="openai"),
        ],
        "tenants": [],
    }


class SimulatedEngine:
    """The engine's own doors for tests: what it shall do wrong, and what it has seen."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._http = httpx.Client(base_url=url.removesuffix("/v1"), timeout=PATIENCE_S)

    def script(self, words: str = "", times: int | None = None) -> None:
        order = {"script": words, "times": times}
        assert self._http.post("/admin/faults", json=order).status_code == 200, words

    def seen(self, *request_ids: str) -> list[dict[str, Any]]:
        """What it received, oldest first; all, or these."""
        found: list[dict[str, Any]] = self._http.get("/admin/requests").json()["requests"]
        wanted = set(request_ids)
        return [r for r in found if not wanted or r["headers"]["x-request-id"] in wanted]

    def saw(self, request_id: str) -> dict[str, Any] | None:
        return next(iter(self.seen(request_id)), None)

    def load(self) -> int:
        """Calls that it serves at the moment."""
        return int(self._http.get("/load").json()["server_load"])

    def close(self) -> None:
        self._http.close()


@dataclass
class Rig:
    stack: Stack
    token: str
    engines: list[SimulatedEngine]
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    _pools: Iterator[int] = field(default_factory=lambda: itertools.count(0))

    @property
    def engine(self) -> SimulatedEngine:
        return self.engines[0]

    @cached_property
    def admin(self) -> httpx.Client:
        headers = {"Authorization": f"Token {self.token}", "If-Match": "*"}
        return httpx.Client(
            base_url=f"{self.stack.url}/api/v1", headers=headers, timeout=PATIENCE_S
        )

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        answer = self.admin.request(method, path, json=body)
        assert answer.is_success, f"{method} {path}: {answer.status_code} {answer.text}"
        return answer.json() if answer.content else None

    # --- policy -----------------------------------------------------------------------------

    def pool(self, most: int = 64, **fields: Any) -> str:
        """A pool of its own on the first engine: of its model nothing has been learnt yet, so
        estimates are what they are at first. Its name."""
        model = FRESH[next(self._pools)]
        made = pool(model, self.stack.engines[:1], most) | fields
        self.ask("POST", "/pools/", made)
        return model

    def tenant(self, application: dict[str, Any] | None = None, **fields: Any) -> Caller:
        """A new tenant of the open tier, or as `fields` say, with a key that is in force. Its
        budgets' windows do not turn under a test."""
        name = f"t{next(self._numbers)}"
        model = fields.pop("model", "chat")
        self.ask(
            "POST", "/tenants/", {"name": name, "tier": "open", "timezone": calm_zone(), **fields}
        )
        if application is not None:
            self.ask("POST", "/applications/", {"tenant": name, **application})
        return self.key(name, application["name"] if application else None, model)

    def key(
        self, tenant: str, application: str | None = None, model: str = "chat", **fields: Any
    ) -> Caller:
        asked = {"tenant": tenant, "application": application, **fields}
        made = self.ask("POST", "/keys/", asked)
        caller = Caller(self.stack.port, tenant, made["key"], made["id"], model)
        until(lambda: caller.get("/v1/models").status == 200, "the key is in force")
        return caller

    def rotated(self, caller: Caller, grace_hours: float) -> Caller:
        """The same key with a new secret, in force."""
        asked = {"grace_hours": grace_hours}
        made = self.ask("POST", f"/keys/{caller.key_id}/rotate/", asked)
        new = replace(caller, key=made["key"])
        until(lambda: new.get("/v1/models").status == 200, "the new secret is in force")
        return new

    def apply(self, document: dict[str, Any]) -> None:
        """The whole policy at once, as `policy apply` does."""
        text = yaml.safe_dump(document)
        self.in_force(self.ask("POST", "/policy/apply/", {"document": text})["revision"])

    def change(self, kind: str, name: str, **fields: Any) -> None:
        """Edit an object of the policy, and wait until the gateway works by it."""
        answer = self.admin.patch(f"/{kind}/{name}/", json=fields)
        assert answer.is_success, answer.text
        self.in_force(int(answer.headers["x-fairlane-revision"]))

    def remove(self, kind: str, name: str) -> None:
        answer = self.admin.delete(f"/{kind}/{name}/")
        assert answer.is_success, answer.text
        self.in_force(int(answer.headers["x-fairlane-revision"]))

    def in_force(self, revision: int) -> None:
        until(lambda: self.metric("fairlane_policy_revision") >= revision, "the policy is in force")

    # --- what there is to see ------------------------------------------------------------------

    def metrics(self) -> str:
        return httpx.get(f"{self.stack.url}/metrics", timeout=PATIENCE_S).text

    def metric(self, name: str) -> float:
        found = [line for line in self.metrics().splitlines() if line.startswith(name)]
        return sum(float(line.rpartition(" ")[2]) for line in found)

    def live(self) -> dict[str, Any]:
        """The gateway's latest sample; it writes one a second."""
        latest = "SELECT state FROM metering_gatewaysample ORDER BY id DESC LIMIT 1"
        found = until(lambda: select(self.stack.folder, latest), "a sample")
        sample: dict[str, Any] = json.loads(found[0]["state"])
        return sample

    def samples(self) -> list[dict[str, Any]]:
        """Those of the last minute, the oldest first."""
        last = "SELECT state FROM metering_gatewaysample ORDER BY id DESC LIMIT 60"
        return [json.loads(row["state"]) for row in select(self.stack.folder, last)][::-1]

    def use(self, tenant: str) -> dict[str, Any]:
        """Running, queued and budgets of a tenant in the latest sample."""
        idle = {"running": 0, "queued": 0, "budgets": []}
        found: dict[str, Any] = self.live()["tenants"].get(tenant, idle)
        return found

    def budgets(self, tenant: str) -> dict[str, dict[str, Any]]:
        return {budget["account"]: budget for budget in self.use(tenant)["budgets"]}

    def gauge(self, name: str, tenant: str) -> float:
        """Of this moment: a sample may be from before what a test has just done."""
        return self.metric(f'fairlane_tenant_{name}{{tenant="{tenant}"}}')

    def queued(self, tenant: str, count: int) -> None:
        until(lambda: self.gauge("queued", tenant) == count, f"{count} of {tenant} wait")

    def running(self, tenant: str, count: int) -> None:
        until(lambda: self.gauge("running", tenant) == count, f"{count} of {tenant} run")

    def idle(self) -> None:
        """Wait until no engine works any more for what was hung up."""
        until(lambda: not any(engine.load() for engine in self.engines), "the engines are idle")

    def rows(self, tenant: str) -> list[dict[str, Any]]:
        """The tenant's usage records so far, in the order of their arrival."""
        return rows(self.stack.folder, tenant)

    def records(self, tenant: str, count: int) -> list[dict[str, Any]]:
        """So many usage records, once they are there; and no more of them."""
        until(lambda: len(self.rows(tenant)) >= count, f"{count} records of {tenant}")
        found = self.rows(tenant)
        assert len(found) == count, found
        return found

    def window(self, account: str) -> float:
        """What the ledger says that an account used, over all windows."""
        query = "SELECT sum(used) AS used FROM metering_budgetwindow WHERE account = ?"
        return float(select(self.stack.folder, query, account)[0]["used"] or 0)

    def record(self, answer: Answer) -> dict[str, Any]:
        where = "request_id = ?"
        found = until(lambda: rows_where(self.stack.folder, where, answer.id), "its record")
        assert len(found) == 1
        record: dict[str, Any] = found[0]
        return record


def kept(folder: Path) -> dict[str, bytes]:
    """What all files hold at the moment; a message to the worker is gone once it is taken."""
    found = {}
    for path in folder.rglob("*"):
        with suppress(FileNotFoundError, IsADirectoryError):
            found[str(path.relative_to(folder))] = path.read_bytes()
    return found


def rows(folder: Path, tenant: str) -> list[dict[str, Any]]:
    return rows_where(folder, "tenant = ? ORDER BY at", tenant)


def rows_where(folder: Path, where: str, *values: str) -> list[dict[str, Any]]:
    return select(folder, f"SELECT * FROM metering_usagerow WHERE {where}", *values)


def select(folder: Path, query: str, *values: str) -> list[dict[str, Any]]:
    """Straight from the file: a page or a command would take a second each."""
    with closing(sqlite3.connect(folder / "fairlane.sqlite3", timeout=20)) as database:
        database.row_factory = sqlite3.Row
        return [dict(row) for row in database.execute(query, values)]


def prepare(made: Stack, document: dict[str, Any]) -> str:
    """Database, policy and an admin, in one process; the admin's token."""
    done = subprocess.run(
        [sys.executable, "-c", SETUP],
        cwd=ROOT,
        env=made.env,
        input=yaml.safe_dump(document),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return str(json.loads(done.stdout)["token"])


@contextmanager
def rig(folder: Path, engines: int) -> Iterator[Rig]:
    """Engines, database, policy, `serve`; all of it ends with the block."""
    with ExitStack() as stopping:
        urls = []
        for _ in range(engines):
            urls.append(stopping.enter_context(many_models(folder)))
        made = Stack(folder, urls, settings={"FAIRLANE_LOG": "json", "FAIRLANE_LOG_CALLS": "all"})
        token = prepare(made, policy(urls))
        made.start()
        ends = [stopping.enter_context(closing(SimulatedEngine(url))) for url in urls]
        running = Rig(made, token, ends)
        try:
            yield running
        finally:
            running.admin.close()
            if made.serving is not None:
                made.stop()


def many_models(folder: Path) -> Any:
    """An engine that answers to the names of all pools."""
    return engine(folder, *MODELS[1:], *FRESH, "--profile", "fast", model=MODELS[0])
