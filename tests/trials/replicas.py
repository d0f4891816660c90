"""Three replicas under load, and something fails: what is lost, what leaks, how long it takes.

.venv/bin/python -m tests.trials.replicas [--seconds 8] [--parallel 24] [--seed 1]
    [--faults killed,paused,redis,postgres] [--modes fail-open,fail-closed]

Each row is a deployment of its own: three gateways, one database, one Redis, one stub with two
endpoints. `CAPPED` tenants have budgets that are used up before, during and after the fault.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

import uvloop

from tests.acceptance.stack import until
from tests.calm import calm_zone
from tests.trials.caller import Call, Caller, body
from tests.trials.outcome import CAPPED, MAX_RUNNING, Row, Sent, Times, judged, table
from tests.trials.product import TENANTS, policy
from tests.trials.replicated import GATEWAYS, Ground, Replicas, ground, replicas

PAUSED_S = 15.0
PAUSE_S = 0.05  # before a caller tries another door
SECONDS_S = 15.0


def document(stub_port: int) -> dict[str, Any]:
    made = policy(stub_port)
    zone = calm_zone()
    made["pools"][0]["capacity"]["max_running"] = MAX_RUNNING
    for name, cost in CAPPED.items():
        cap = {"name": "cap", "kind": "sustained", "cost": cost, "period": "day"}
        made["tenants"].append({"name": name, "tier": "open", "timezone": zone, "budgets": [cap]})
    return made


@dataclass
class Load:
    """Callers one call after another, each at a gateway of its own; past one that shuts its door
    they go to the next."""

    running: Replicas
    parallel: int
    dice: random.Random
    sent: list[Sent] = field(default_factory=list)
    over: bool = False

    async def run(self) -> None:
        capped = [(name, number) for name in CAPPED for number in range(GATEWAYS)]
        free = [("", number % GATEWAYS) for number in range(self.parallel)]
        await asyncio.gather(*(self._work(*one) for one in (*capped, *free)))

    async def _work(self, capped: str, home: int) -> None:
        doors = [Caller(gateway.port, self.dice) for gateway in self.running.gateways]
        at = home
        while not self.over:
            tenant = capped or self.dice.choice(TENANTS)
            call = self._capped(tenant, at) if capped else self._one(tenant, at)
            sent = Sent(call, tenant, at, time.time())
            self.sent.append(sent)
            await doors[at].ask(call)
            sent.ended = time.time()
            if not call.sent:
                at = (at + 1) % GATEWAYS
            elif self.dice.random() < 0.1:
                at = home  # whether it is back
            await asyncio.sleep(0 if sent.served and not capped else PAUSE_S)

    def _one(self, tenant: str, at: int) -> Call:
        out, stream = self.dice.randint(2, 20), self.dice.random() < 0.6
        script = {"by": at, "in": self.dice.randint(1, 60), "out": out}
        pace = {"gap": 0.01} if stream else {"hold": self.dice.uniform(0.05, 0.25)}
        if stream and self.dice.random() < 0.1:
            pace, script["out"] = {"gap": 0.05}, 40
        return Call(self.running.keys[tenant], body(script | pace, stream=stream), "free")

    def _capped(self, tenant: str, at: int) -> Call:
        hold = self.dice.uniform(0.2, 0.6)
        script = {"by": at, "in": 10, "out": 10, "hold": hold}
        return Call(self.running.keys[tenant], body(script, max_tokens=10), "capped")


# --- faults -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Fault:
    """`begin` and `undo` wait, so they run in a thread; `whole` is when all was as before, if it
    was, from the moments of both."""

    name: str
    begin: Callable[[Replicas], None]
    undo: Callable[[Replicas], None]
    whole: Callable[[Replicas, list[Sent], float, float], float | None]
    lasts_s: float | None = None


def swept(running: Replicas, sent: list[Sent], began: float, undone: float) -> float | None:
    found = running.told("ended what a dead gateway held")
    return next((at for at in found if at > began), None)


def serves_again(running: Replicas, sent: list[Sent], began: float, undone: float) -> float | None:
    """The one that slept."""
    ends = [s.ended for s in sent if s.served and s.gateway == 0 and s.began > undone]
    return min(ends, default=None)


def all_are_back(running: Replicas, sent: list[Sent], began: float, undone: float) -> float | None:
    each = [running.told("the shared state is in reach again", n) for n in range(GATEWAYS)]
    return max(ends[-1] for ends in each) if all(each) else None


def recorded_again(
    running: Replicas, sent: list[Sent], began: float, undone: float
) -> float | None:
    """By when a page shows what each gateway did: its first sample after the restart."""
    query = f"SELECT min(at) AS at FROM metering_gatewaysample WHERE at > to_timestamp({undone})"
    firsts = running.select(f"{query} GROUP BY gateway")
    return max(row["at"].timestamp() for row in firsts) if firsts else None


FAULTS = {
    "killed": Fault(
        "replica SIGKILL",
        lambda running: running.kill(0),
        lambda running: running.gateways[0].start(),
        swept,
    ),
    "paused": Fault(
        f"replica SIGSTOP {PAUSED_S:g} s",
        lambda running: running.signal(0, signal.SIGSTOP),
        lambda running: running.signal(0, signal.SIGCONT),
        serves_again,
        PAUSED_S,
    ),
    "redis": Fault(
        "Redis SIGKILL, empty after",
        lambda running: running.redis.kill(),
        lambda running: running.redis.start(),
        all_are_back,
    ),
    "postgres": Fault(
        "PostgreSQL SIGKILL",
        lambda running: running.postgres.kill(),
        lambda running: running.postgres.start(),
        recorded_again,
    ),
}


async def under_load(load: Load, fault: Fault, seconds: float) -> Times:
    times = Times(time.time())
    working = asyncio.create_task(load.run())
    await asyncio.sleep(seconds / 2)
    times.began = time.time()
    await asyncio.to_thread(fault.begin, load.running)
    times.begun = time.time()
    await asyncio.sleep(fault.lasts_s or seconds)
    times.undone = time.time()
    await asyncio.to_thread(fault.undo, load.running)
    await asyncio.sleep(seconds)
    load.over = True
    times.ended = time.time()
    await working
    return times


def trial(
    on: Ground, folder: Path, fault: str, mode: str, seconds: float, parallel: int, seed: int
) -> Row:
    what, dice = FAULTS[fault], random.Random(seed)
    with replicas(on, folder, mode) as running:
        load = Load(running, parallel, dice)
        times = uvloop.run(under_load(load, what, seconds))
        known = {s.call.request_id for s in load.sent if s.call.request_id}
        running.settled(len(known))
        with suppress(AssertionError):  # what a new server lacks is made good within seconds
            until(lambda: not running.off_the_ledger(running.rows()), "it is", SECONDS_S)
        whole = what.whole(running, load.sent, times.began, times.undone)
        return judged(running, load.sent, times, what.name, mode, whole)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--parallel", type=int, default=24)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--faults", default=",".join(FAULTS))
    parser.add_argument("--modes", default="fail-open,fail-closed")
    given = parser.parse_args()
    rows, violated = [], False
    load = given.seconds, given.parallel, given.seed
    with ground(document, [*TENANTS, *CAPPED]) as on:
        for fault, mode in product(given.faults.split(","), given.modes.split(",")):
            with tempfile.TemporaryDirectory(prefix="fairlane-trial-") as folder:
                row = trial(on, Path(folder), fault, mode, *load)
            print(f"{fault}, {mode}", flush=True)
            row.truths.show()
            rows.append(row)
            violated |= bool(row.truths.violated)
    print(table(rows))
    sys.exit(1 if violated else 0)


if __name__ == "__main__":
    main()
