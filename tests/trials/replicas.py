"""Three replicas under load, and something fails: what is lost, what leaks, how long it takes.

.venv/bin/python -m tests.trials.replicas [--seconds 8] [--parallel 24] [--seed 1]
    [--faults killed,paused,redis,postgres] [--modes fail-open,fail-closed]

Each row is a deployment of its own: three gateways, one database, one Redis, one stub with two
endpoints. `CAPPED` tenants have budgets that are used up before, during and after the fault.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import signal
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import httpx
import uvloop

from tests.acceptance.stack import PATIENCE_S, until
from tests.calm import calm_zone
from tests.trials.caller import Call, Caller, body
from tests.trials.product import TENANTS, policy
from tests.trials.replicated import GATEWAYS, Ground, Replicas, ground, replicas
from tests.trials.truths import Truths, counters, off_the_ledger

MAX_RUNNING = 6  # of each endpoint: two for each gateway that is apart
UNIT = 30.0  # what a request of a capped tenant costs: 10 tokens in, 10 out at 2 each
PAUSED_S = 15.0
PAUSE_S = 0.05  # before a caller tries another door
SECONDS_S = 15.0
LEDGER_S = 5.0  # apart, a gateway follows the ledger every 3 s, and that comes some tenths behind
CAPPED = {f"capped-{n}": cost * UNIT for n, cost in enumerate((20, 50, 100, 160))}


def document(stub_port: int) -> dict[str, Any]:
    made = policy(stub_port)
    zone = calm_zone()
    made["pools"][0]["capacity"]["max_running"] = MAX_RUNNING
    # A process that was stopped for a while finds all its timers due at once.
    made["pools"][0]["timeouts"] = {"connect": 10, "first_token": 60, "idle": 60, "total": 120}
    for name, cost in CAPPED.items():
        cap = {"name": "cap", "kind": "sustained", "cost": cost, "period": "day"}
        made["tenants"].append({"name": name, "tier": "open", "timezone": zone, "budgets": [cap]})
    return made


@dataclass(slots=True)
class Sent:
    """A call, at which gateway it was made, and when it began and ended (`time.time`)."""

    call: Call
    tenant: str
    gateway: int
    began: float
    ended: float = 0.0

    @property
    def served(self) -> bool:
        return self.call.served

    @property
    def end(self) -> str:
        """In a word: `ok`, the code of the refusal, or how far it came."""
        if self.served:
            return "ok"
        if not self.call.sent:
            return "no connection"
        if self.call.status in (0, 200):
            return "broken off"
        text = self.call.raw.partition(b"\r\n\r\n")[2]
        return str(json.loads(text)["error"]["code"])


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


@dataclass
class Times:
    started: float = 0.0
    began: float = 0.0
    begun: float = 0.0
    undone: float = 0.0
    ended: float = 0.0


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


# --- what came of it ----------------------------------------------------------------------------


@dataclass
class Run:
    """At the engine: by which gateway, from when till when."""

    endpoint: str
    by: int
    began: float
    ended: float


def runs_of(running: Replicas, since: float) -> list[Run]:
    url = f"http://127.0.0.1:{running.stub_port}/runs"
    runs = [Run(*one) for one in httpx.get(url, timeout=PATIENCE_S).json()]
    return [run for run in runs if run.began >= since]


def peak(runs: Iterable[Run], since: float, till: float) -> tuple[int, float]:
    """The most at once at one endpoint in that time, and when."""
    most = (0, since)
    by_endpoint: defaultdict[str, list[tuple[float, int]]] = defaultdict(list)
    for run in runs:
        if run.began < till and run.ended > since:
            by_endpoint[run.endpoint] += [(max(run.began, since), 1), (run.ended, -1)]
    for changes in by_endpoint.values():
        at_once = 0
        for at, change in sorted(changes):
            at_once += change
            if at_once > most[0]:
                most = at_once, at
    return most


def apart_bound(running: Replicas, runs: list[Run], lost: list[float]) -> int:
    """At one endpoint while each gateway has its part, or what it ran when it went apart."""
    part = MAX_RUNNING // GATEWAYS

    def taken(endpoint: str, by: int) -> int:
        mine = [r for r in runs if r.endpoint == endpoint and r.by == by]
        return sum(any(r.began <= at < r.ended for r in mine) for at in lost) and max(
            sum(r.began <= at < r.ended for r in mine) for at in lost
        )

    ends = {run.endpoint for run in runs}
    return max(sum(max(part, taken(e, by)) for by in range(GATEWAYS)) for e in ends)


def in_flight(sent: list[Sent]) -> float:
    """The most that calls of a tenant which were let in could have cost at once."""
    changes = sorted(
        change
        for s in sent
        if s.end in ("ok", "broken off")
        for change in ((s.began, 1), (s.ended, -1))
    )
    most = at_once = 0
    for _, change in changes:
        at_once += change
        most = max(most, at_once)
    return most * UNIT


def let_in(sent: list[Sent], within_s: float) -> float:
    """The most that was let in within any such stretch of time."""
    begun = sorted(s.began for s in sent if s.end in ("ok", "broken off"))
    return UNIT * max((sum(at <= b < at + within_s for b in begun) for at in begun), default=0)


def unlike(running: Replicas, sent: list[Sent]) -> Counter[str]:
    """Complete answers, each against its one record and what the engine said."""
    rows: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in running.rows():
        rows[row["request_id"]].append(row)
    said = running.said()
    found: Counter[str] = Counter(
        {"lost": 0, "twice": sum(len(each) > 1 for each in rows.values()), "otherwise": 0}
    )
    for one in sent:
        if one.served:
            records, engine = rows.get(one.call.request_id), said[one.call.request_id]
            if not records:
                found["lost"] += 1
            else:
                told = records[0]["prompt_tokens"], records[0]["completion_tokens"]
                found["otherwise"] += told != (engine["prompt"], engine["out"])
    return found


@dataclass
class Row:
    cells: dict[str, str]
    truths: Truths


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
            until(lambda: not off_the_ledger(running, running.rows()), "it is", SECONDS_S)
        return judged(running, load.sent, times, what, mode)


def judged(running: Replicas, sent: list[Sent], times: Times, fault: Fault, mode: str) -> Row:
    truths, cells = Truths(), {"fault": fault.name, "mode": mode}
    answered = [s for s in sent if s.served]
    cells["answered"] = str(len(answered))
    found = unlike(running, sent)
    truths.must("answers without a record", found["lost"])
    truths.must("answers recorded with another usage", found["otherwise"])
    cells["lost, twice, with another usage"] = ", ".join(str(n) for n in found.values())
    truths.must("reservations open", running.open_reservations())
    counters(truths, running)
    cells["slots, reservations left"] = f"{running.open_slots()}, {running.open_reservations()}"
    whole = fault.whole(running, sent, times.began, times.undone)
    truths.at_least("whole again", whole or 0.0, times.began)
    _engine(truths, cells, running, times)
    _budgets(truths, cells, running, sent, mode)
    _recovery(cells, sent, times, whole)
    return Row(cells, truths)


def _engine(truths: Truths, cells: dict[str, str], running: Replicas, times: Times) -> None:
    runs = runs_of(running, times.started)
    lost = [at for at in running.told("the shared state is out of reach") if at > times.began]
    back = [at for at in running.told("the shared state is in reach again") if at > times.began]
    away = (min(lost), max(back)) if lost and back else (times.ended, times.ended)
    before, after = peak(runs, 0, away[0]), peak(runs, away[1], times.ended + 60)
    most = max(before[0], after[0])
    truths.at_most("at an endpoint at once, state whole", most, MAX_RUNNING)
    cells["at an endpoint at once"] = f"{most} of {MAX_RUNNING}"
    if lost:
        (most, at), bound = peak(runs, *away), apart_bound(running, runs, lost)
        bound = max(bound, MAX_RUNNING)
        truths.at_most("at an endpoint at once, apart", most, bound)
        cells["the same, Redis away"] = f"{most} of {bound}"
        told = [f"{at - times.began:.2f}" for at in (*lost, *back)]
        truths.note(f"lost, back at {' '.join(told)} s; most at once", f"{at - times.began:.2f} s")


def _budgets(
    truths: Truths, cells: dict[str, str], running: Replicas, sent: list[Sent], mode: str
) -> None:
    used = running.windows()
    told = []
    for name, limit in CAPPED.items():
        mine = [s for s in sent if s.tenant == name]
        over = max(0.0, used.get(f"tenant:{name}/cap", 0.0) - limit)
        room = max(in_flight(mine), let_in(mine, LEDGER_S) if mode == "fail-open" else 0)
        truths.at_most(f"{name}: units past its budget", over, room)
        told.append((over, room))
    worst = max(told)
    cells["units past a budget"] = f"{worst[0]:g} of {worst[1]:g}"


def _recovery(cells: dict[str, str], sent: list[Sent], times: Times, whole: float | None) -> None:
    """Of capped tenants' calls none: they are refused for another reason."""
    free = [s for s in sent if s.tenant not in CAPPED]
    ends = sorted(s.ended for s in free if s.served and s.ended >= times.began)
    first = min((s.ended for s in free if s.served and s.began >= times.begun), default=0.0)
    silent = max((b - a for a, b in pairwise([times.began, *ends])), default=0.0)
    cells["first answer, s"] = f"{first - times.began:.2f}"
    cells["longest silence, s"] = f"{silent:.2f}"
    reference = "after it began" if whole and whole < times.undone else "after its end"
    since = times.began if whole and whole < times.undone else times.undone
    cells["whole again, s"] = f"{whole - since:.1f} {reference}" if whole else "never"
    refused = Counter(s.end for s in free if s.ended >= times.began and not s.served)
    cells["not answered"] = ", ".join(f"{n} {end}" for end, n in refused.most_common()) or "none"


def table(rows: list[Row]) -> str:
    names = list(dict.fromkeys(name for row in rows for name in row.cells))
    lines = [names, ["---"] * len(names), *([r.cells.get(n, "–") for n in names] for r in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


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
