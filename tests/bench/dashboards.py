# ruff: noqa: E402  Django must be set up before what needs its models is imported
"""Each dashboard over each range, on ninety days of use: server time and number of queries.

    .venv/bin/python -m tests.bench.dashboards [--records 200000] [--rounds 3]
    FAIRLANE_TEST_STORE=postgres .venv/bin/python -m tests.bench.dashboards

Server time in this process, without sockets: the best of the rounds, after one that does not
count; beside it the CPU time of this process, which on SQLite is all there is. With
FAIRLANE_DATA_DIR or DATABASE_URL (and SECRET_KEY) set it uses that database, and seeds it
(tests.bench.seed_usage) only where it has no records.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
import time

from tests import env  # noqa: F401  its own folder and database, before Django's settings

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "fairlane.settings")

import django

django.setup()

from django.core.management import call_command
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext, setup_test_environment

from metering.dashboards.boards import KINDS
from metering.models import UsageDay, UsageHour, UsageMinute, UsageQuarter, UsageRow
from tenants.models import Membership
from tests import builders
from tests.bench.seed_usage import seed

GOAL_MS = 500.0
RANGES = ("1h", "24h", "7d", "90d")


def addresses(span: str) -> dict[str, str]:
    found = {
        name: ("/" if name == "overview" else f"/watch/{name}/") + f"?range={span}"
        for name in KINDS
    }
    found["neighbours"] += "&tenant=tenant-03"
    found["usage"] = f"/usage/?tenant=tenant-00&range={span}"
    return found


def measure(client: Client, address: str, rounds: int) -> tuple[float, float, int]:
    """Milliseconds, those of this process's CPU, and queries; the best of the rounds."""
    taken, spent = [], []
    for _ in range(rounds + 1):
        with CaptureQueriesContext(connection) as queries:
            begun, cpu = time.perf_counter(), time.process_time()
            answer = client.get(address)
            taken.append((time.perf_counter() - begun) * 1e3)
            spent.append((time.process_time() - cpu) * 1e3)
        assert answer.status_code == 200, address
    return min(taken[1:]), min(spent[1:]), len(queries)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--records", type=int, default=200_000)
    parser.add_argument("--days", type=int, default=90)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    logging.disable(logging.INFO)
    setup_test_environment()
    call_command("migrate", verbosity=0)
    if not UsageRow.objects.exists():
        seed(options.records, options.days)
    person = Membership.objects.filter(role="admin").first()
    who = person.user if person else builders.user("ada", "admin")
    client = Client()
    client.force_login(who)
    counts = (m.objects.count() for m in (UsageRow, UsageMinute, UsageQuarter, UsageHour, UsageDay))
    named = ("records", "minutes", "quarters", "hours", "days")
    print(connection.vendor, ", ".join(f"{n:,} {w}" for n, w in zip(counts, named, strict=True)))
    print("| page | " + " | ".join(f"{span}, ms (CPU)" for span in RANGES) + " | queries |")
    print("| --- |" + " ---: |" * (len(RANGES) + 1))
    slow = 0
    for name in addresses("1h"):
        found = [measure(client, addresses(span)[name], options.rounds) for span in RANGES]
        slow += sum(ms > GOAL_MS for ms, *_ in found)
        cells = " | ".join(f"{ms:.0f} ({cpu:.0f})" for ms, cpu, _ in found)
        print(f"| {name} | {cells} | {max(queries for *_, queries in found)} |", flush=True)
    print(f"{slow} past {GOAL_MS:g} ms")
    return 0


if __name__ == "__main__":
    sys.exit(main())
