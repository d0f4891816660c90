"""The tenants that clients call as, and how a program of a client is run."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.gateway.caller import Caller
from tests.acceptance.gateway.rig import Rig
from tests.acceptance.stack import until
from tests.clients.install import PACKAGES

PATIENCE_S = 240.0  # a client loads itself, on a busy machine
NO_HUB = {"HF_HUB_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1", "TRANSFORMERS_OFFLINE": "1"}
ENDLESS_TOKENS = 30_000  # of the answers that are hung up (programs/given.py)
BURST = {"name": "burst", "kind": "burst", "cost": 100, "refill_per_second": 10}
DAILY = {"name": "daily", "kind": "sustained", "period": "day", "on_exhausted": "reject"}
TENANTS: dict[str, dict[str, Any]] = {
    "open": {"limits": {"requests_per_minute": 5000}},
    "short": {"limits": {"max_input_tokens": 100, "max_output_tokens": 400}},
    "one": {"limits": {"max_running": 1, "max_queued": 0}, "budgets": [{**DAILY, "cost": 10**6}]},
    "closed": {"limits": {"max_running": 0}},
    "bucket": {"budgets": [BURST]},
    "spent": {"budgets": [{**DAILY, "cost": 1}]},
}


_made: dict[int, dict[str, Caller]] = {}  # by the port of what serves them


@dataclass(frozen=True)
class Cast:
    """A client and the tenants it calls as, by what they stand for."""

    rig: Rig
    client: str
    tenants: dict[str, str]
    keys: dict[str, str]

    @property
    def url(self) -> str:
        return self.rig.stack.url

    def run(self, *command: str, folder: Path | None = None, **env: str) -> str:
        """What a program of the client says; it must end well.

        Nothing that a shell of ours knows of other services is handed on."""
        given = {"FAIRLANE_URL": self.url, "FAIRLANE_KEYS": json.dumps(self.keys)}
        own = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
        done = subprocess.run(
            command,
            cwd=folder,
            env={**own, **given, **env},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def settled(self) -> None:
        """Nothing of any call is left, and no answer that was hung up was written to its end."""
        self.rig.idle()
        for tenant in self.tenants.values():
            self.rig.running(tenant, 0)
            self.rig.queued(tenant, 0)
        until(self._nothing_held, "the budget of who hung up holds only what its records say")
        rows = self.rig.rows(self.tenants["one"])
        assert all(row["completion_tokens"] < ENDLESS_TOKENS for row in rows)

    def _nothing_held(self) -> bool:
        one = self.tenants["one"]
        spent = sum(row["cost"] for row in self.rig.rows(one))
        budget = self.rig.budgets(one).get(f"tenant:{one}/daily", {"used": 0, "reserved": 0})
        return (budget["used"], budget["reserved"]) == (spent, 0)


def cast(rig: Rig, client: str) -> Cast:
    """Skips where only others were asked for."""
    if client not in (os.environ["FAIRLANE_REAL_CLIENTS"].split() or PACKAGES):
        pytest.skip(f"{client} was not asked for")
    made = everyone(rig)
    names = {name: caller.tenant for name, caller in made.items()}
    return Cast(rig, client, names, {name: caller.key for name, caller in made.items()})


def everyone(rig: Rig) -> dict[str, Caller]:
    """The same few for all clients: of many tenants the live sample leaves out those at rest."""
    if rig.stack.port not in _made:
        made = {name: rig.tenant(**fields) for name, fields in TENANTS.items()}
        assert made["spent"].chat(max_tokens=1).status == 200  # its budget lets the first call in
        _made[rig.stack.port] = made
    return _made[rig.stack.port]
