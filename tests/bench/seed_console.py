# ruff: noqa: E402  Django must be set up before what needs its models is imported
"""A large installation: tenants, applications, keys, people, a long audit, an hour of use.

    FAIRLANE_DATA_DIR=/tmp/large SECRET_KEY=x .venv/bin/python -m tests.bench.seed_console

fills an empty database (DATABASE_URL, or SQLite in FAIRLANE_DATA_DIR) at full size, in a minute or
two; `--scale 0.01` makes a small one. It prints the login. `tests.bench.console_pages`
measures on it.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "fairlane.settings")

import django

django.setup()

from django.contrib.auth.models import User
from django.core.management import call_command
from django.db import connection

from metering.models import BudgetWindow, GatewaySample, UsageRow
from tenants import services
from tenants.models import ApiKey, AuditEntry, KeySecret, Membership, PolicyRevision, Tenant
from tests import builders

BATCH = 1000
NUMBERS = {
    "sqlite": "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {count}) ",
    "postgresql": "WITH n AS (SELECT generate_series(1, {count}) AS i) ",
}
EARLIER = {  # each copy further in the past
    "sqlite": "strftime('%Y-%m-%d %H:%M:%f', at, '-' || (n.i * {step}) || ' seconds')",
    "postgresql": "at - n.i * interval '{step} seconds'",
}


@dataclass(frozen=True, slots=True)
class Size:
    tenants: int = 1_000
    applications: int = 5_000
    keys: int = 10_000
    audit: int = 1_000_000
    people: int = 1_000
    revisions: int = 50
    records: int = 20_000  # in the last hour

    def times(self, scale: float) -> Size:
        return Size(*(max(1, round(getattr(self, name) * scale)) for name in self.__slots__))


def seed(size: Size) -> None:
    """Into an empty database, or beside what a smaller size has put there."""
    at = datetime.now(UTC)
    builders.apply_policy(policy_of(size))
    for number in range(size.revisions):
        edit = {"weight": 2 + number % 7}
        services.edit_object("tenant", "globex", edit, actor=builders.ROOT)
    seed_keys(size, at)
    seed_people(size)
    seed_audit(size, at)
    seed_use(size, at)


def tenant_names(size: Size) -> list[str]:
    return [f"tenant-{number:04}" for number in range(size.tenants)]


def policy_of(size: Size) -> dict[str, Any]:

    document = builders.policy()
    names, each = tenant_names(size), max(1, size.applications // size.tenants)
    document["tenants"] += [
        {
            "name": name,
            "tier": ("gold", "bronze")[number % 2],
            "enabled": number % 50 != 0,
            "limits": {"max_running": 1 + number % 20},
            "budgets": [{"name": "monthly", "kind": "sustained", "cost": 10**9, "period": "month"}],
            "applications": [{"name": f"{name}-app-{place}"} for place in range(each)],
        }
        for number, name in enumerate(names)
    ]
    return document


def seed_keys(size: Size, at: datetime) -> None:

    tenants = list(
        Tenant.objects.filter(name__startswith="tenant-").prefetch_related("applications")
    )
    made = ApiKey.objects.count()
    for start in range(made, made + size.keys, BATCH):
        keys = [
            ApiKey(
                public_id=f"{number:012d}".translate(str.maketrans("01", "ab")),
                tenant=tenants[number % len(tenants)],
                application=tenants[number % len(tenants)].applications.all()[0],
                name=f"key {number}",
                created_by="root",
                created_at=at - timedelta(minutes=number),
                expires_at=at + timedelta(days=number % 90) if number % 3 == 0 else None,
                revoked_at=at if number % 10 == 0 else None,
                last_used_at=at if number % 4 else None,
            )
            for number in range(start, min(start + BATCH, made + size.keys))
        ]
        ApiKey.objects.bulk_create(keys)
        KeySecret.objects.bulk_create(
            KeySecret(key=key, digest=sha256(key.public_id.encode()).hexdigest()) for key in keys
        )


def seed_people(size: Size) -> None:

    tenants = list(Tenant.objects.filter(name__startswith="tenant-"))
    made = User.objects.count()
    people = [User(username=f"person-{made + number:04}") for number in range(size.people)]
    User.objects.bulk_create(people, batch_size=BATCH)
    roles = ("tenant-admin", "tenant-viewer")
    Membership.objects.bulk_create(
        (
            Membership(user=user, role=roles[number % 2], tenant=tenants[number % len(tenants)])
            for number, user in enumerate(people)
        ),
        batch_size=BATCH,
    )


def seed_audit(size: Size, at: datetime) -> None:
    """Some are made here; the database copies them into the past until there are enough."""

    first = min(BATCH, size.audit)
    AuditEntry.objects.bulk_create(audit_entries(first, size, at))
    copies = size.audit // first - 1
    if copies < 1:
        return
    columns = [each.column for each in AuditEntry._meta.fields if each.column not in ("id", "at")]
    named = ", ".join(f'"{name}"' for name in columns)
    moment = EARLIER[connection.vendor].format(step=first)
    numbers = NUMBERS[connection.vendor].format(count=copies)
    insert = f"INSERT INTO tenants_auditentry (at, {named}) "
    select = f"SELECT {moment}, {named} FROM tenants_auditentry CROSS JOIN n "
    where = "WHERE actor LIKE 'person-%'"
    begin = insert + numbers if connection.vendor == "sqlite" else numbers + insert
    with connection.cursor() as cursor:
        cursor.execute(begin + select + where, None)


def audit_entries(count: int, size: Size, at: datetime) -> Iterator[Any]:

    names, fields = tenant_names(size), ("weight", "limits.max_running", "enabled")
    for number in range(count):
        yield AuditEntry(
            at=at - timedelta(seconds=number),
            actor=f"person-{number % 40:04}",
            source=("page", "api", "command")[number % 3],
            kind="tenant",
            name=names[number % len(names)],
            field=fields[number % 3],
            old=number % 5,
            new=number % 5 + 1,
            reason="Seeded",
        )


def seed_use(size: Size, at: datetime) -> None:
    """The last hour's requests of many tenants, their windows, and a gateway that tells of all."""

    names = tenant_names(size)
    rows = list(records(size.records, names, at))
    UsageRow.objects.bulk_create(rows, batch_size=BATCH)
    builders.count_minutes([row.at for row in rows])
    start = at.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    BudgetWindow.objects.bulk_create(
        (
            BudgetWindow(
                account=f"tenant:{name}/monthly",
                window_start=start,
                window_end=start + timedelta(days=31),
                used=number * 2_000_000.0,
            )
            for number, name in enumerate(names)
        ),
        batch_size=BATCH,
        ignore_conflicts=True,
    )
    state = builders.live_state(at)
    lane = state["pools"]["demo-chat"]["lanes"]["interactive-standard"]
    for number, name in enumerate(names):
        lane["tenants"][name] = {
            "queued": number % 4,
            "running": number % 3,
            "counter": 10.0 * number,
            "served": 100.0 * number,
            "debt": float(number % 100 - 50),
            "weight": 1.0,
        }
        state["tenants"][name] = {"running": number % 3, "queued": number % 4, "budgets": []}
    GatewaySample.objects.create(gateway="host-b:1", at=at, state=state)


def records(count: int, names: list[str], at: datetime) -> Iterator[Any]:

    made = UsageRow.objects.count()
    for number in range(count):
        name, refused = names[number % len(names)], number % 11 == 0
        yield UsageRow(
            request_id=f"req-{made + number:016x}",
            at=at - timedelta(seconds=3600 * number / count),
            tenant=name,
            application=f"{name}-app-0",
            key="abcdefghijkm",
            model="demo-chat",
            lane="interactive-standard",
            prompt_tokens=0 if refused else 500,
            completion_tokens=0 if refused else 200,
            cost=0.0 if refused else 900.0,
            e2e_ms=0.0 if refused else 2400.0,
            status=429 if refused else 200,
            finish_reason="throttled" if refused else "stop",
            throttle_reason="requests_per_minute" if refused else "",
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=float, default=1.0)
    asked = parser.parse_args()
    if not (os.environ.get("DATABASE_URL") or os.environ.get("FAIRLANE_DATA_DIR")):
        print("set DATABASE_URL or FAIRLANE_DATA_DIR: it fills that database")
        return 2

    call_command("migrate", verbosity=0)
    if PolicyRevision.objects.exists():
        print("this database has a policy already; it fills empty ones only")
        return 2
    seed(Size().times(asked.scale))
    builders.cast()
    print(f"login: ada, password: {builders.PASSWORD}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
