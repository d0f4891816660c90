# ruff: noqa: E402  Django must be set up before what needs its models is imported
"""What Fairlane decides and writes down for one request, without HTTP: µs a request, by step.

    .venv/bin/python -m tests.bench.policy_work [--requests 4000] [--rounds 5]

Key check, admission, reservation, fair queue, settlement, usage record, journal and metrics, with
AT_ONCE requests running, and the ledger's thread writing the records into SQLite meanwhile. Reading
the body, rewriting it and the two sockets are not in it. A step's figure is its median over the
requests, on the gateway's thread; the last line is CPU of the whole process, the ledger's thread
too. The best of the rounds: whatever else the machine does can only add.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import hashlib
import os
import shutil
import statistics
import time
from collections import defaultdict, deque
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

from tests import env  # noqa: F401  its own folder and database, before Django's settings

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "fairlane.settings")

import django

django.setup()

import uvloop
from django.conf import settings
from django.core.management import call_command

from gateway import admission
from gateway.calls import open_entry
from gateway.estimates import Estimates
from gateway.governor import LocalGovernor
from gateway.identity import identify
from gateway.metrics import count
from gateway.policy import scheduler_config
from gateway.run import Run, new_request_id
from gateway.wire.request import ParsedCall, parse
from gateway.wire.usage import Usage
from metering.core.accounts import LocalAccounts
from metering.journal import Journal
from metering.ledger import LedgerWriter, PolicyBudgets
from scheduling.runtime import LocalScheduler
from tenants.core.compile import KeyGrant, compile_snapshot
from tenants.core.snapshot import PolicySnapshot
from tenants.core.validation import validate
from tests.bench.gateway.asked import PLAIN, policy

AT_ONCE = 16
SECRET = b"sk-of-globex"
T = TypeVar("T")


class Steps(defaultdict[str, list[int]]):
    """Nanoseconds by step, one figure a request."""

    def take(self, name: str, work: Callable[[], T]) -> T:
        began = time.perf_counter_ns()
        made = work()
        self[name].append(time.perf_counter_ns() - began)
        return made


class Policy:
    """The parts of a gateway that are not HTTP."""

    def __init__(self) -> None:
        self.snapshot = compiled()
        self.estimates = Estimates()
        accounts, scheduler = LocalAccounts(), LocalScheduler(scheduler_config(self.snapshot))
        self.governor = LocalGovernor(accounts, scheduler)
        self.journal = Journal.start(Path(settings.FAIRLANE_DATA_DIR) / "journal")
        self.ledger = LedgerWriter(self.journal, PolicyBudgets(lambda: self.snapshot))
        self.ledger.start()

    def plan(self, run: Run, call: ParsedCall) -> None:
        who = run.who
        assert who is not None
        admission.check_tenant(who.tenant)
        pool = admission.find_pool(run.snapshot, who.tenant, call.model)
        lane = admission.find_lane(run.snapshot, who, "")
        run.model, run.lane = pool.model, lane.name
        prompt = self.estimates.prompt_tokens(pool.model, call)
        admission.check_input(who.tenant, prompt, call.route.prompt_field)
        ceiling = admission.output_ceiling(who.tenant, call)
        name = run.application_name()
        run.plan = admission.make_plan(
            request_id=run.request_id,
            snapshot=run.snapshot,
            who=who,
            call=call,
            pool=pool,
            lane=lane,
            estimate=self.estimates.of(name, pool.model, call, prompt, ceiling),
            at=run.at,
        )

    async def begin(self, call: ParsedCall, steps: Steps) -> Run:
        run = Run(new_request_id(), datetime.now(UTC), time.monotonic(), self.snapshot)
        run.who = steps.take("key check", lambda: identify(self.snapshot, SECRET, run.at))
        steps.take("admission's checks and plan", lambda: self.plan(run, call))
        assert run.plan is not None
        began = time.perf_counter_ns()
        run.place = await self.governor.admit(run.plan)  # there is a place: it never waits
        steps["reservation and fair queue"].append(time.perf_counter_ns() - began)
        run.endpoint, run.rates, run.asked = run.place.grant.endpoint, run.place.rates, True
        steps.take("journal, opened", lambda: self.journal.opened(open_entry(run)))
        return run

    def end(self, run: Run, call: ParsedCall, steps: Steps) -> None:
        run.answering, run.usage = True, Usage(112, 0, 32)
        record = steps.take("usage record", lambda: run.record(time.monotonic()))
        tokens = record.prompt_tokens + record.completion_tokens
        settle = self.governor.settle
        steps.take("settlement", lambda: settle(run.request_id, tokens, record.cost))
        steps.take("journal, ended", lambda: self.journal.ended(record))
        steps.take("metrics", lambda: count(record, run))
        learn = self.estimates.learn
        steps.take("estimates", lambda: learn(run.application_name(), run.model, call, run))


def compiled() -> PolicySnapshot:
    grant = KeyGrant("key1", "globex", "search", hashlib.sha256(SECRET).digest(), None)
    return compile_snapshot(validate(policy("http://127.0.0.1:1/v1")), [grant], 1, 1)


async def one_round(parts: Policy, requests: int) -> tuple[Steps, float]:
    steps, call = Steps(list), parse("chat", PLAIN)
    running: deque[Run] = deque()
    began = time.process_time()
    for _ in range(requests):
        running.append(await parts.begin(call, steps))
        if len(running) == AT_ONCE:
            parts.end(running.popleft(), call, steps)
    while running:
        parts.end(running.popleft(), call, steps)
    assert await asyncio.to_thread(parts.ledger.flush, 60)
    return steps, time.process_time() - began


async def measure(requests: int, rounds: int) -> None:
    parts = Policy()
    gc.collect()
    gc.freeze()
    found: list[dict[str, float]] = []
    for _ in range(rounds):
        steps, spent = await one_round(parts, requests)
        figures = {name: statistics.median(taken) / 1e3 for name, taken in steps.items()}
        figures["all steps"] = sum(figures.values())
        figures["CPU, with the ledger's thread"] = spent / requests * 1e6
        found.append(figures)
    for name in found[0]:
        print(f"  {name:34} {min(figures[name] for figures in found):8.1f}")
    assert await asyncio.to_thread(parts.ledger.stop, 10)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=4000)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    call_command("migrate", verbosity=0)
    print(f"µs a request, {AT_ONCE} running, best of {given.rounds} × {given.requests}")
    uvloop.run(measure(given.requests, given.rounds))
    shutil.rmtree(Path(settings.FAIRLANE_DATA_DIR) / "journal", ignore_errors=True)


if __name__ == "__main__":
    main()
