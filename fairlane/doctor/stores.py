"""The database and Redis: there, of the right kind, and keeping what they are given."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import msgspec
import redis
from django.conf import settings
from django.db import connection
from django.db.migrations.executor import MigrationExecutor

from fairlane.doctor.finding import Finding, fail, ok, warn
from metering import partitions
from scheduling.shared.records import LAYOUT
from scheduling.shared.trouble import in_words
from scheduling.shared.wire import Keys

REDIS_LEAST = 7  # functions
FULL = 0.9
APART_S = 1.0
HISTORY = ("tenants_auditentry", "tenants_policyrevision")


def database() -> Iterator[Finding]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1")
    executor = MigrationExecutor(connection)
    pending = executor.migration_plan(executor.loader.graph.leaf_nodes())
    if pending:
        yield fail("database", f"{len(pending)} migrations are missing", "Run `manage.py migrate`.")
    if connection.vendor == "postgresql":
        yield from _postgresql()
    elif settings.REDIS_URL:
        yield warn(
            "database",
            "SQLite, while REDIS_URL is set: replicas on other hosts cannot share it",
            "Set DATABASE_URL to a PostgreSQL, unless all of it runs on this host.",
        )
    else:
        yield ok("database", "SQLite, for one host")


def _postgresql() -> Iterator[Finding]:
    with connection.cursor() as cursor:
        cursor.execute("SHOW server_version")
        version = cursor.fetchone()[0]
        cursor.execute("SELECT extract(epoch FROM clock_timestamp())")
        yield from _clock("database", float(cursor.fetchone()[0]))
        may = []
        for table in HISTORY:
            cursor.execute("SELECT has_table_privilege(%s, 'UPDATE, DELETE, TRUNCATE')", [table])
            may += [table] if cursor.fetchone()[0] else []
    yield ok("database", f"PostgreSQL {version}")
    if may:
        yield warn(
            "database",
            f"this role could drop what keeps {' and '.join(may)} append-only",
            "Run as a role of its own: docs/operations.md, History that only grows.",
        )
    if not partitions.are_ours():
        yield warn(
            "database",
            f"{partitions.TABLE} is not this role's: its records get no tables by day",
            "Make this role its owner: docs/operations.md, PostgreSQL.",
        )


def redis_server() -> Iterator[Finding]:
    if not settings.REDIS_URL:
        yield ok("redis", "REDIS_URL is unset: one gateway process, its scheduler in memory")
        return
    client: Any = redis.Redis.from_url(settings.REDIS_URL, socket_timeout=5)
    try:
        told = client.info()
    except (redis.RedisError, OSError) as error:
        yield fail("redis", in_words(error), "Mend REDIS_URL, or the server's user, and restart.")
        return
    version = str(told["redis_version"])
    if int(version.partition(".")[0]) < REDIS_LEAST:
        least = f"the scheduler takes Redis {REDIS_LEAST} or newer"
        yield fail("redis", f"{_own_name(told)}; {least}")
    else:
        yield ok("redis", f"{_own_name(told)}, {told['used_memory_human']} in use")
    yield from _keeps(client, told)
    yield from _takes(told)
    yield from _records(client)
    seconds, micros = client.time()
    yield from _clock("redis", seconds + micros / 1e6)


def _own_name(told: dict[str, Any]) -> str:
    """Another server that speaks Redis's protocol tells its name and its version beside the
    version of Redis that it is like."""
    like = f"Redis {told['redis_version']}"
    name = str(told.get("server_name", "redis"))
    if name == "redis":
        return like
    version = told.get(f"{name}_version", "")
    return f"{name.capitalize()} {version}".strip() + f", like {like}"


def _keeps(client: Any, told: dict[str, Any]) -> Iterator[Finding]:
    policy = told.get("maxmemory_policy", "noeviction")
    if policy != "noeviction":
        yield fail(
            "redis",
            f"maxmemory-policy is {policy}: counters may be thrown out for room",
            "Set maxmemory-policy to noeviction.",
        )
    if not told.get("aof_enabled"):
        yield warn(
            "redis",
            "appendonly is off: its restart loses tasks, and counters come from the ledger anew",
            "Set appendonly to yes.",
        )


def _takes(told: dict[str, Any]) -> Iterator[Finding]:
    if told.get("role", "master") != "master":
        yield fail(
            "redis",
            "it is a replica of another and takes no writes",
            "Name the primary in REDIS_URL.",
        )
    most = told.get("maxmemory") or 0
    if most and told["used_memory"] > FULL * most:
        found = f"{told['used_memory_human']} of {told['maxmemory_human']} are in use"
        yield warn("redis", found, "Raise maxmemory: a full server lets no call in.")


def _records(client: Any) -> Iterator[Finding]:
    """The scheduler's, of another release with another layout."""
    raw = client.get(f"{Keys().prefix}pools")
    for pool in msgspec.msgpack.decode(raw) if raw else []:
        key = Keys().of(pool)[0]
        record = client.get(key)
        if record and not record.startswith(LAYOUT.encode()):
            now = time.time()
            alive = client.zrangebyscore(f"{key.removesuffix('pool')}replicas", now, "+inf")
            names = ", ".join(sorted(one.decode() for one in alive)) or "nobody that lives"
            yield fail(
                "redis",
                f"its records are another release's (in use by {names}): this release cannot join",
                "Stop the gateways of that release; those of this one then join by themselves.",
            )
            return


def _clock(subject: str, theirs: float) -> Iterator[Finding]:
    apart = theirs - datetime.now(UTC).timestamp()
    if abs(apart) > APART_S:
        yield fail(
            subject,
            f"its clock is {apart:+.1f} s from this machine's",
            "Set both by NTP: budgets' windows and leases hang on them.",
        )
