"""One gateway on one stub for a trial; and what its ledger, its counters and the stub say."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx

from tests.acceptance.gateway.rig import select
from tests.acceptance.stack import PATIENCE_S, ROOT, Stack, answers, free_port, until

TENANTS = ("alice", "bob", "carol")
MONTHLY = {"name": "monthly", "kind": "sustained", "cost": 1e12, "period": "month"}
BURST = {"name": "burst", "kind": "burst", "cost": 1e9, "refill_per_second": 0.001}
SETUP = """
import json, os, sys, django
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "fairlane.settings")
django.setup()
from django.core.management import call_command
call_command("migrate", verbosity=0)
call_command("policy", "apply", "-", stdout=sys.stderr)
for owner in sys.argv[1:]:
    tenant, _, application = owner.partition("/")
    more = ["--application", application] if application else []
    call_command("keys", "create", "--tenant", tenant, "--json", *more)
"""
WINDOWS = "SELECT account, sum(used) AS used FROM metering_budgetwindow GROUP BY account"
LATEST = "SELECT state FROM metering_gatewaysample ORDER BY id DESC LIMIT 1"
COLUMNS = (
    "request_id, tenant, status, finish_reason, usage_source, prompt_tokens, completion_tokens,"
    " cost, throttle_reason"
)


def policy(stub_port: int, **changes: Any) -> dict[str, Any]:
    """Two endpoints that are one stub; cost is 1 for a token in, 2 for one out."""
    ends = [f"http://127.0.0.1:{stub_port}/{name}/v1" for name in "ab"]
    made: dict[str, Any] = {
        "version": 1,
        "lanes": [{"name": "normal", "rank": 0, "max_queue_seconds": 30}],
        "tiers": [{"name": "open", "lane": "normal", "budgets": [MONTHLY, BURST]}],
        "pools": [
            {
                "model": "chat",
                "endpoints": [{"url": url} for url in ends],
                "capacity": {"max_running": 16, "max_running_tokens": 10**7},
                "timeouts": {"connect": 2, "first_token": 1, "idle": 1, "total": 5},
            }
        ],
        "tenants": [{"name": name, "tier": "open"} for name in TENANTS],
    }
    return made | changes


@dataclass
class Product:
    folder: Path
    stub_port: int
    keys: dict[str, str]
    port: int
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        log = (self.folder / "serve.log").open("ab")
        role = ("--role", "gateway", "--port", str(self.port))
        self.process = process = subprocess.Popen(
            [sys.executable, "manage.py", "serve", *role],
            cwd=ROOT,
            env=Stack(self.folder).env,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        log.close()

        def is_up() -> bool:
            assert process.poll() is None, (self.folder / "serve.log").read_text()[-3000:]
            return answers(f"http://127.0.0.1:{self.port}/readyz")

        until(is_up, "the gateway is ready")

    def end(self, how: Callable[[subprocess.Popen[bytes]], None]) -> int:
        assert self.process is not None
        how(self.process)
        status = self.process.wait(PATIENCE_S)
        self.process = None
        return status

    def manage(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "manage.py", *arguments],
            cwd=ROOT,
            env=Stack(self.folder).env,
            capture_output=True,
            text=True,
            check=False,
        )

    def said(self) -> dict[str, dict[str, int]]:
        """What the stub told to each request id."""
        found = httpx.get(f"http://127.0.0.1:{self.stub_port}/said", timeout=PATIENCE_S).json()
        return dict(found)

    def rows(self) -> list[dict[str, Any]]:
        return select(self.folder, f"SELECT {COLUMNS} FROM metering_usagerow")

    def windows(self) -> dict[str, float]:
        """What the ledger counted, over all windows."""
        return {row["account"]: row["used"] for row in select(self.folder, WINDOWS)}

    def live(self) -> dict[str, Any]:
        found = until(lambda: select(self.folder, LATEST), "a sample")
        state: dict[str, Any] = json.loads(found[0]["state"])
        return state

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

    def settled(self, rows: int | None = None, patience_s: float = 20.0) -> None:
        """Wait until nothing is open and all rows are there; what is left then is the finding."""
        began = datetime.now(UTC)

        def is_quiet() -> bool:
            if datetime.fromisoformat(self.live()["at"]) <= began:
                return False
            enough = rows is None or len(self.rows()) >= rows
            return enough and not self.open_slots() and not self.held()

        with suppress(AssertionError):
            until(is_quiet, "the gateway is quiet", patience_s)

    def differences(self) -> int:
        """Of counters, stored and live, against the ledger: `usage verify`."""
        found = json.loads(self.manage("usage", "verify", "--json").stdout)
        return len(found["differences"]) + len(found["gateways_not_compared"])


@contextmanager
def product(
    folder: Path, made: Callable[[int], dict[str, Any]] = policy, owners: tuple[str, ...] = TENANTS
) -> Iterator[Product]:
    """A stub, a database with the policy and a key for each owner, and a gateway; then none."""
    with ExitStack() as stopping:
        stub = subprocess.Popen(
            [sys.executable, "-m", "tests.trials.stub"], cwd=ROOT, stdout=subprocess.PIPE, text=True
        )
        stopping.callback(stop, stub)
        assert stub.stdout is not None
        port = int(stub.stdout.readline())
        running = Product(folder, port, prepare(folder, made(port), owners), free_port())
        running.start()
        try:
            yield running
        finally:
            if running.process is not None:
                running.end(subprocess.Popen.terminate)


def stop(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait()
    assert process.stdout is not None
    process.stdout.close()


def prepare(folder: Path, document: dict[str, Any], owners: tuple[str, ...]) -> dict[str, str]:
    done = subprocess.run(
        [sys.executable, "-c", SETUP, *owners],
        cwd=ROOT,
        env=Stack(folder).env,
        input=json.dumps(document),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    keys = [json.loads(line)["key"] for line in done.stdout.splitlines() if line.startswith("{")]
    return dict(zip(owners, keys, strict=True))
