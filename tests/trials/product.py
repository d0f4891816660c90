"""One gateway on one stub for a trial; and what its ledger, its counters and the stub say."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx

from tests.acceptance.stack import PATIENCE_S, ROOT, Stack, free_port, ready, serve, until
from tests.trials import store

TENANTS = ("alice", "bob", "carol")
OWNERS: dict[str, list[dict[str, Any]]] = {name: [] for name in TENANTS}
MONTHLY = {"name": "monthly", "kind": "sustained", "cost": 1e12, "period": "month"}
BURST = {"name": "burst", "kind": "burst", "cost": 1e9, "refill_per_second": 0.001}
SETUP = """
import json, os, sys, django
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "fairlane.settings")
django.setup()
from django.core.management import call_command
from tenants.services import Actor, apply_document, create_key
asked, actor = json.load(sys.stdin), Actor("trial", "command")
call_command("migrate", verbosity=0)
apply_document(asked["policy"], actor=actor)
keys = {}
for owner, budgets in asked["owners"].items():
    tenant, _, application = owner.partition("/")
    keys[owner] = create_key(tenant, application or None, budgets=budgets, actor=actor)[1]
print(json.dumps(keys))
"""
WINDOWS = "SELECT account, sum(used) AS used FROM metering_budgetwindow GROUP BY account"
LATEST = "SELECT state FROM metering_gatewaysample ORDER BY id DESC LIMIT 1"
COLUMNS = (
    "request_id, tenant, status, finish_reason, usage_source, prompt_tokens, completion_tokens,"
    " cost, throttle_reason"
)


def policy(stub_port: int, **changes: Any) -> dict[str, Any]:
    """Two endpoints that are one stub; cost is 1 for a token in, 2 for one out. Only calls of
    `hung` meet a time limit: a good one must not, however busy the machine is."""
    patient = {"connect": 60, "first_token": 60, "idle": 60, "total": 120}
    made: dict[str, Any] = {
        "version": 1,
        "lanes": [{"name": "normal", "rank": 0, "max_queue_seconds": 120}],
        "tiers": [{"name": "open", "lane": "normal", "budgets": [MONTHLY, BURST]}],
        "pools": [
            pool("chat", stub_port, patient),
            pool("hung", stub_port, {"connect": 60, "first_token": 5, "idle": 5, "total": 30}),
        ],
        "tenants": [{"name": name, "tier": "open"} for name in TENANTS],
    }
    return made | changes


def pool(model: str, stub_port: int, timeouts: dict[str, float]) -> dict[str, Any]:
    ends = [f"http://127.0.0.1:{stub_port}/{name}/v1" for name in "ab"]
    return {
        "model": model,
        "endpoints": [{"url": url} for url in ends],
        "capacity": {"max_running": 16, "max_running_tokens": 10**7},
        "timeouts": timeouts,
    }


@dataclass
class Books:
    """What the database, the live state and the stub say of a product's requests."""

    folder: Path
    stub_port: int
    keys: dict[str, str]
    database: str
    settings: dict[str, str] = field(default_factory=dict)

    @property
    def env(self) -> dict[str, str]:
        return env(self.folder, self.database) | self.settings

    def manage(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "manage.py", *arguments],
            cwd=ROOT,
            env=self.env,
            capture_output=True,
            text=True,
            check=False,
        )

    def said(self) -> dict[str, dict[str, int]]:
        """What the stub told to each request id."""
        found = httpx.get(f"http://127.0.0.1:{self.stub_port}/said", timeout=PATIENCE_S).json()
        return dict(found)

    def select(self, query: str) -> list[dict[str, Any]]:
        return store.rows(self.folder, self.database, query)

    def rows(self) -> list[dict[str, Any]]:
        return self.select(f"SELECT {COLUMNS} FROM metering_usagerow")

    def windows(self) -> dict[str, float]:
        """What the ledger counted, over all windows."""
        return {row["account"]: row["used"] for row in self.select(WINDOWS)}

    def live(self) -> dict[str, Any]:
        [found] = until(lambda: self.select(LATEST), "a sample")
        return state_of(found)

    def open_slots(self) -> int:
        """Places taken at engines, running and queued requests of tenants, by the live state."""
        state = self.live()
        ends = [e for pool in state["pools"].values() for e in pool["endpoints"].values()]
        tenants = state["tenants"].values()
        return sum(e["running"] for e in ends) + sum(t["running"] + t["queued"] for t in tenants)

    def budgets(self) -> dict[str, dict[str, Any]]:
        tenants = self.live()["tenants"].values()
        return {b["account"]: b for tenant in tenants for b in tenant["budgets"]}

    def held(self) -> float:
        return float(sum(budget["reserved"] for budget in self.budgets().values()))

    def off_the_ledger(self, rows: list[dict[str, Any]]) -> float:
        """By how much live counters differ from these, in units."""
        live, costs = self.budgets(), monthly_costs(rows)
        return float(sum(abs(live[a]["used"] - cost) for a, cost in costs.items() if a in live))

    def settled(self, rows: int | None = None, patience_s: float = PATIENCE_S) -> None:
        """Wait until nothing is open and all rows are there; what is left then is the finding."""
        began = datetime.now(UTC)

        def is_quiet() -> bool:
            if datetime.fromisoformat(self.live()["at"]) <= began:
                return False
            there = self.rows()
            enough = rows is None or len(there) >= rows
            if not enough or self.open_slots() or self.held():
                return False
            return not self.off_the_ledger(there)  # that of a call that left may be on its way

        with suppress(AssertionError):
            until(is_quiet, "the gateway is quiet", patience_s)

    def differences(self) -> int:
        """Of counters, stored and live, against the ledger: `usage verify`."""
        found = json.loads(self.manage("usage", "verify", "--json").stdout)
        return len(found["differences"]) + len(found["gateways_not_compared"])


@dataclass(kw_only=True)
class Product(Books):
    port: int
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self.launch()
        self.await_ready()

    def launch(self) -> None:
        self.process = serve(self.folder, self.env, self.port, "--role", "gateway")

    def await_ready(self) -> None:
        assert self.process is not None
        ready(self.process, self.folder, self.port)

    def end(self, how: Callable[[subprocess.Popen[bytes]], None]) -> int:
        assert self.process is not None
        how(self.process)
        status = self.process.wait(PATIENCE_S)
        self.process = None
        return status


def monthly_costs(rows: list[dict[str, Any]]) -> Counter[str]:
    costs: Counter[str] = Counter()
    for row in rows:
        costs[f"tenant:{row['tenant']}/monthly"] += row["cost"]
    return costs


def state_of(sample: dict[str, Any]) -> dict[str, Any]:
    """SQLite gives JSON as text."""
    state = sample["state"]
    read: dict[str, Any] = json.loads(state) if isinstance(state, str) else state
    return read


@contextmanager
def product(
    folder: Path,
    made: Callable[[int], dict[str, Any]] = policy,
    owners: Mapping[str, list[dict[str, Any]]] = OWNERS,
) -> Iterator[Product]:
    """A stub, a database with the policy and for each owner a key with those budgets, and a
    gateway; then none."""
    with stub() as port:
        database = store.new_database()
        keys = prepare(env(folder, database), made(port), owners)
        running = Product(folder, port, keys, database, port=free_port())
        running.start()
        try:
            yield running
        finally:
            if running.process is not None:
                running.end(subprocess.Popen.terminate)


@contextmanager
def stub() -> Iterator[int]:
    """Its port."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.trials.stub"], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    try:
        yield int(process.stdout.readline())
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def env(folder: Path, database: str) -> dict[str, str]:
    return {**Stack(folder).env, "DATABASE_URL": database}


def prepare(
    env: dict[str, str], document: dict[str, Any], owners: Mapping[str, list[dict[str, Any]]]
) -> dict[str, str]:
    done = subprocess.run(
        [sys.executable, "-c", SETUP],
        cwd=ROOT,
        env=env,
        input=json.dumps({"policy": document, "owners": owners}),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    keys: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    return keys
