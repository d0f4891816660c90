# ruff: noqa: E402  Django must be set up before what needs its models is imported
"""What a usage record costs the gateway's process: journal, reader and database, CPU µs a record.

`python -m tests.bench.records [--records 20000] [--rounds 3]`; `FAIRLANE_TEST_STORE=postgres` for
PostgreSQL; its server's own CPU is told by itself. Prints a table of medians.
"""

from __future__ import annotations

import argparse
import gc
import os
import shutil
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from tests import env  # noqa: F401  its own folder and database, before Django's settings

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "fairlane.settings")

import django
import msgspec
import psutil

django.setup()

from django.conf import settings
from django.core.management import call_command
from django.db import connection

from gateway.run import new_request_id
from metering import store
from metering.core.accounts import LocalAccounts
from metering.core.hold import Admitted, Hold
from metering.core.record import UsageRecord
from metering.journal import Journal, OpenEntry
from metering.journal_reader import Ended
from metering.ledger import LedgerWriter
from tenants.core.snapshot import BudgetPolicy, Limits

BUDGETS = (
    BudgetPolicy("tenant:acme/hourly", "hourly", "sustained", 1e12, period="hour"),
    BudgetPolicy("tenant:acme/burst", "burst", "burst", 1e12, refill_per_second=1e6),
)
LIMITS = Limits(requests_per_minute=10**9, tokens_per_minute=10**12, max_running=9, max_queued=99)
BATCH = 1_200
COMMON = {
    "tenant": "acme",
    "application": "support-bot",
    "key": "key_0123456789",
    "model": "demo-chat",
    "lane": "interactive-standard",
    "endpoint": "http://127.0.0.1:9101/v1",
    "prompt_tokens": 120,
    "completion_tokens": 60,
    "accounts": tuple(budget.account for budget in BUDGETS),
}


def requests(count: int) -> list[tuple[OpenEntry, UsageRecord]]:
    at = datetime.now(UTC)
    made = []
    for _ in range(count):
        name = new_request_id()
        opened = OpenEntry(request_id=name, at=at, estimated_cost=200.0, **COMMON)
        ended = UsageRecord(
            request_id=name, at=at, cost=240.0, queue_ms=1.5, ttft_ms=12.3, e2e_ms=500.2, **COMMON
        )
        made.append((opened, ended))
    return made


class Timings(dict[str, list[float]]):
    @contextmanager
    def measure(self, name: str, count: int) -> Iterator[None]:
        cpu, wall = time.process_time(), time.perf_counter()
        yield
        self.setdefault(name, []).append((time.process_time() - cpu) / count * 1e6)
        rate = count / (time.perf_counter() - wall)
        self.setdefault(f"{name}, thousands a second", []).append(rate / 1e3)


def one_round(timings: Timings, count: int) -> None:
    made = requests(count)
    gc.collect()
    gc.freeze()  # the collector must not walk what only the benchmark keeps
    accounts = LocalAccounts()
    at = made[0][0].at
    with timings.measure("reserve + settle", count):
        for number, (opened, _) in enumerate(made):
            now = number / 1000
            name = opened.request_id
            hold = Hold(name, "acme", LIMITS, BUDGETS, tokens=180, cost=200.0, ceiling_cost=900.0)
            assert isinstance(accounts.reserve(hold, now, at), Admitted)
            accounts.settle(name, 180, 240.0, now, at)
    journal = Journal.start(Path(settings.FAIRLANE_DATA_DIR) / "journal")
    writer = LedgerWriter(journal, {budget.account: budget for budget in BUDGETS}.get)
    with timings.measure("journal + ledger", count):
        for opened, ended in made:
            journal.opened(opened)
            journal.ended(ended)
        writer.start()
        assert writer.flush(120)
    assert writer.stop(10)
    save(timings, count)


def save(timings: Timings, count: int) -> None:
    """As the ledger does, in batches of what it reads at once."""
    made = [Ended(record, msgspec.json.encode(record)) for _, record in requests(count)]
    budget_of = {budget.account: budget for budget in BUDGETS}.get
    server_cpu = server_seconds()
    with timings.measure("the database alone", count):
        for start in range(0, count, BATCH):
            store.save(made[start : start + BATCH], budget_of)
    spent = (server_seconds() - server_cpu) / count * 1e6
    timings.setdefault("the database alone, its server", []).append(spent)


def server_seconds() -> float:
    """CPU time that PostgreSQL's process for this connection has had."""
    if connection.vendor != "postgresql":
        return 0.0
    connection.ensure_connection()
    times = psutil.Process(connection.connection.info.backend_pid).cpu_times()
    return float(times.user + times.system)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    call_command("migrate", verbosity=0)
    timings = Timings()
    for _ in range(given.rounds):
        one_round(timings, given.records)
    print(f"{connection.vendor}, {given.records} records, median of {given.rounds} rounds, CPU µs")
    for name, values in timings.items():
        print(f"  {name:40s} {statistics.median(values):8.1f}")
    connection.close()
    shutil.rmtree(Path(settings.FAIRLANE_DATA_DIR) / "journal", ignore_errors=True)


if __name__ == "__main__":
    main()
