"""What came of a trial of several replicas: one row of the table in docs/scale.md."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import httpx

from tests.acceptance.stack import PATIENCE_S
from tests.trials.caller import Call
from tests.trials.replicated import GATEWAYS, Replicas
from tests.trials.truths import Truths, counters

MAX_RUNNING = 6  # of each endpoint: two for each gateway that is apart
UNIT = 30.0  # what a request of a capped tenant costs: 10 tokens in, 10 out at 2 each
LEDGER_S = 5.0  # apart, a gateway follows the ledger every 3 s, and that comes some tenths behind
CAPPED = {f"capped-{n}": cost * UNIT for n, cost in enumerate((20, 50, 100, 160))}


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
class Times:
    started: float = 0.0
    began: float = 0.0
    begun: float = 0.0
    undone: float = 0.0
    ended: float = 0.0


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


def judged(
    running: Replicas, sent: list[Sent], times: Times, fault: str, mode: str, whole: float | None
) -> Row:
    """`whole`: when all was as before, if it was."""
    truths, cells = Truths(), {"fault": fault, "mode": mode}
    answered = [s for s in sent if s.served]
    cells["answered"] = str(len(answered))
    found = unlike(running, sent)
    truths.must("answers without a record", found["lost"])
    truths.must("answers recorded with another usage", found["otherwise"])
    cells["lost, twice, with another usage"] = ", ".join(str(n) for n in found.values())
    truths.must("reservations open", running.open_reservations())
    counters(truths, running)
    cells["slots, reservations left"] = f"{running.open_slots()}, {running.open_reservations()}"
    if whole is None:
        truths.must("whole again", "never", "in time")
    else:
        truths.at_least("whole again, s after the fault began", round(whole - times.began, 2), 0.0)
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
