# ruff: noqa: E402  Django must be set up before what needs its models is imported
"""Every page and API list of the console at the size of a large installation: ms and queries.

    .venv/bin/python -m tests.bench.console_pages [--scale 1] [--rounds 3] [--over 100]
    FAIRLANE_TEST_STORE=postgres .venv/bin/python -m tests.bench.console_pages

1 000 tenants, 5 000 applications, 10 000 keys, 1 000 people, 1 000 000 audit entries, an hour of
20 000 requests. Server time in this process, without sockets: the best of the rounds, after one
that does not count; CPU is this process's, which on SQLite is all there is. The
routes are those of the URL conf, so a new page is in it; filters and far
pages that people use are added by hand (MORE). With FAIRLANE_DATA_DIR or DATABASE_URL (and
SECRET_KEY) set it uses that database, and seeds it only where it is empty.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

from tests import env  # noqa: F401  its own folder and database, before Django's settings

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "fairlane.settings")

import django

django.setup()

from django.contrib.auth import get_user_model
from django.core.management import call_command
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext, setup_test_environment

from tenants.models import ApiKey, PolicyRevision
from tests import builders
from tests.bench.seed_console import Size, seed
from tests.integration.console.routes import every

GOAL_MS = 300.0
MORE = (
    "/tenants/?q=tenant-05&sort=-tokens",
    "/tenants/?state=throttled&sort=-throttled&page=5",
    "/tenants/tenant-0500/",
    "/keys/?state=expiring+soon",
    "/keys/?q=key+99&state=all",
    "/keys/?tenant=tenant-0500",
    "/keys/?page=100",
    "/budgets/?of=tenant&page=5",
    "/audit/?actor=person-0007",
    "/audit/?kind=tenant&name=tenant-0500",
    "/audit/?field=weight",
    "/audit/?since=2026-11-20&until=2026-11-21",
    "/usage/?tenant=tenant-0500&range=24h",
    "/users/?q=person-09",
    "/api/v1/tenants/?limit=100",
    "/api/v1/keys/?tenant=tenant-0500",
    "/api/v1/audit/?actor=person-0007",
    "/api/v1/usage/records/?tenant=tenant-0500",
)


@dataclass(frozen=True, slots=True)
class Answer:
    route: str
    status: int
    ms: float
    cpu_ms: float
    queries: int
    kib: float


def measured(client: Client, route: str, rounds: int) -> Answer:
    def ask() -> Answer:
        with CaptureQueriesContext(connection) as queries:
            began, cpu = time.perf_counter(), time.process_time()
            answer = client.get(route)
            size = 0 if answer.streaming else len(answer.content)
            took, used = time.perf_counter() - began, time.process_time() - cpu
        code = answer.status_code
        return Answer(route, code, took * 1000, used * 1000, len(queries), size / 1024)

    ask()
    builders.seed_samples(minutes=0)  # a gateway is heard of for some seconds only
    return min((ask() for _ in range(rounds)), key=lambda answer: answer.ms)


def prepared(size: Size) -> Client:
    setup_test_environment()
    call_command("migrate", verbosity=0)
    if not PolicyRevision.objects.exists():
        took("seeding", lambda: (seed(size), builders.cast()))
    client = Client(raise_request_exception=False)
    client.force_login(get_user_model().objects.get(username="ada"))
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE")
    return client


def took(what: str, work: Callable[[], object]) -> None:
    began = time.monotonic()
    work()
    print(f"{what}: {time.monotonic() - began:.0f} s", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--over", type=float, default=0.0, help="print those over so many ms only")
    asked = parser.parse_args()
    logging.disable(logging.ERROR)
    client = prepared(Size().times(asked.scale))
    key = ApiKey.objects.filter(revoked_at=None).values_list("public_id", flat=True)[0]
    ids = {"public_id": key, "token_id": "nosuchtoken2"}
    routes = [
        route.at(**ids)
        for route in every()
        if route.kind in ("page", "call") or (route.kind == "admin" and "<" not in route.address)
    ]
    answers = [measured(client, route, asked.rounds) for route in (*routes, *MORE)]
    for each in answers:
        if each.status >= 500:
            print(f"failed: {each.route}")
    answers = [each for each in answers if each.status == 200]
    print(f"\n{connection.vendor}; {len(answers)} pages and lists\n")
    print("|      ms |  CPU ms | queries |     KiB | page |")
    print("| ------: | ------: | ------: | ------: | --- |")
    for each in sorted(answers, key=lambda each: -each.ms):
        if each.ms >= asked.over:
            figures = f"{each.ms:7.1f} | {each.cpu_ms:7.1f}"
            print(f"| {figures} | {each.queries:7} | {each.kib:7.0f} | `{each.route}` |")
    slow = [each for each in answers if each.ms > GOAL_MS]
    print(f"\nover {GOAL_MS:.0f} ms: {len(slow)} of {len(answers)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
