"""Data that several suites and the screenshots look at: a policy of six tenants, its people, and
some hours of their traffic. Everything goes through the same doors as in production, but for
usage rows, which are written as the ledger would."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from metering.history import note
from metering.models import GatewaySample, TouchedMinute, UsageRow
from metering.tasks import roll_up, roll_up_days
from tenants import services
from tenants.services import Actor

ROOT = Actor("root", "system")
FAST_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]  # slow ones cost a second each
PASSWORD = "a-long-password-for-tests"

LIMITS = {
    "requests_per_minute": 600,
    "tokens_per_minute": 400_000,
    "max_running": 32,
    "max_queued": 200,
    "max_input_tokens": 32_768,
    "max_output_tokens": 4096,
}
LANES = ["interactive-critical", "interactive-standard", "async-batch"]


def policy() -> dict[str, Any]:
    return {
        "version": 1,
        "lanes": [
            {
                "name": "interactive-critical",
                "rank": 0,
                "engine_priority": 0,
                "reserved_share": 0.3,
                "max_queue_seconds": 20,
            },
            {"name": "interactive-standard", "rank": 1, "reserved_share": 0.2},
            {
                "name": "async-batch",
                "rank": 2,
                "reserved_share": 0.1,
                "ceiling": 0.9,
                "max_queue_seconds": 3600,
            },
        ],
        "tiers": [
            {
                "name": "gold",
                "weight": 4,
                "lane": "interactive-standard",
                "allowed_lanes": LANES,
                "limits": LIMITS,
                "budgets": [
                    {"name": "burst", "kind": "burst", "cost": 200_000, "refill_per_second": 4000},
                    {"name": "hourly", "kind": "sustained", "cost": 5_000_000, "period": "hour"},
                ],
            },
            {
                "name": "bronze",
                "lane": "async-batch",
                "limits": {"max_running": 4, "max_queued": 50, "requests_per_minute": 120},
                "on_overload": "reject",
                "budgets": [
                    {"name": "daily", "kind": "sustained", "cost": 2_000_000, "period": "day"}
                ],
            },
        ],
        "pools": [
            {
                "model": "demo-chat",
                "aliases": ["gpt-4o-mini"],
                "endpoints": [
                    {"url": "http://127.0.0.1:9101/v1"},
                    {"url": "http://127.0.0.1:9102/v1"},
                ],
                "price": {
                    "currency": "USD",
                    "input_per_million": "0.20",
                    "output_per_million": "0.80",
                },
            },
            {
                "model": "org/code-7b",
                "endpoints": [{"url": "http://127.0.0.1:9103/v1", "drain": True}],
                "capacity": "auto",
            },
        ],
        "tenants": [
            {
                "name": "acme",
                "tier": "gold",
                "weight": 8,
                "timezone": "Asia/Tokyo",
                "applications": [
                    {"name": "support-bot", "lane": "interactive-critical", "weight": 3},
                    {"name": "nightly", "lane": "async-batch"},
                ],
            },
            {"name": "globex", "tier": "gold", "applications": [{"name": "search"}]},
            {"name": "initech", "tier": "gold", "limits": {"max_running": 8}},
            {"name": "umbrella", "tier": "bronze", "applications": [{"name": "reports"}]},
            {"name": "hooli", "tier": "bronze", "weight": 2},
            {"name": "stark", "tier": "bronze", "enabled": False},
        ],
    }


def apply_policy(data: dict[str, Any] | None = None, reason: str = "First policy") -> None:
    services.apply_document(data or policy(), actor=ROOT, reason=reason)


def user(name: str, role: str, tenant: str | None = None) -> Any:
    found, _, _ = services.create_user(name, role, tenant, PASSWORD, actor=ROOT)
    return found


def cast() -> dict[str, Any]:
    """One person a role; both of a tenant's roles are acme's, and an outsider is globex's."""
    return {
        "admin": user("ada", "admin"),
        "operator": user("otto", "operator"),
        "tenant-admin": user("alice", "tenant-admin", "acme"),
        "tenant-viewer": user("vic", "tenant-viewer", "acme"),
        "outsider": user("bob", "tenant-admin", "globex"),
    }


# requests a minute, prompt, completion, queue in ms, part throttled
HABITS = {
    "acme": (14, 900, 260, 180, 0.01),
    "globex": (9, 1500, 400, 260, 0.03),
    "initech": (5, 400, 700, 420, 0.0),
    "umbrella": (7, 2600, 120, 1900, 0.22),
    "hooli": (3, 700, 300, 900, 0.05),
}
REASONS = ("requests_per_minute", "tokens_per_minute", "max_running", "tenant:{}/daily")


def usage_rows(until: datetime, hours: float, seed: int = 7) -> Iterator[UsageRow]:
    """Traffic that swells and ebbs, the same for the same seed."""
    draw = random.Random(seed)
    minutes = int(hours * 60)
    for minute in range(minutes):
        at = until - timedelta(minutes=minutes - minute)
        swell = 1 + 0.6 * math.sin(minute / 40)
        for tenant, (rate, *habit) in HABITS.items():
            for _ in range(round(draw.expovariate(1 / (rate * swell)))):
                moment = at + timedelta(seconds=draw.uniform(0, 59.9))
                yield usage_row(draw, tenant, moment, habit)


def usage_row(draw: random.Random, tenant: str, at: datetime, habit: list[float]) -> UsageRow:
    prompt, completion, queue, throttled = habit
    row = UsageRow(
        request_id=f"req-{draw.getrandbits(64):016x}",
        at=at,
        tenant=tenant,
        application={"acme": "support-bot", "globex": "search"}.get(tenant, ""),
        key="abcdefghijkm",
        model="demo-chat",
        lane="async-batch" if tenant in ("umbrella", "hooli") else "interactive-standard",
        policy_revision=1,
    )
    if draw.random() < throttled:
        row.status, row.finish_reason = 429, "throttled"
        row.throttle_reason = draw.choice(REASONS).format(tenant)
        return row
    row.prompt_tokens = round(draw.uniform(0.3, 1.7) * prompt)
    row.completion_tokens = round(draw.uniform(0.3, 1.7) * completion)
    row.cost = row.prompt_tokens + 2.0 * row.completion_tokens
    row.estimated_cost = row.prompt_tokens + 2.0 * completion
    row.usage_source, row.endpoint = "engine", "http://127.0.0.1:9101/v1"
    row.queue_ms = draw.expovariate(1 / queue)
    row.ttft_ms = row.queue_ms + draw.uniform(60, 240)
    row.e2e_ms = row.ttft_ms + row.completion_tokens * 12
    return row


def seed_usage(until: datetime | None = None, hours: float = 2) -> int:
    """Rows and their roll-ups up to now; returns how many requests."""
    rows = list(usage_rows(until or datetime.now(UTC), hours))
    UsageRow.objects.bulk_create(rows, batch_size=500)
    count_minutes([row.at for row in rows])
    return len(rows)


def count_minutes(moments: list[datetime]) -> None:
    minutes = {moment.replace(second=0, microsecond=0) for moment in moments}
    TouchedMinute.objects.bulk_create(TouchedMinute(minute=minute) for minute in minutes)
    while roll_up() or roll_up_days():
        pass


SERVED_A_SECOND = {"acme": 120.0, "globex": 75.0, "initech": 30.0}


def live_state(at: datetime, phase: float = 0.0) -> dict[str, Any]:
    """One gateway's sample, in the shape of docs/architecture.md, "Live state"."""
    waiting = {"acme": 8.0, "globex": 4.0, "initech": 4.0}
    debts = [6000 * math.sin(phase + 2 * place) for place in range(3)]
    debts[2] = -debts[0] - debts[1]  # a lane's debts add up to zero
    tenants = {
        name: {
            "queued": 2 + place,
            "running": 3,
            "counter": 812.5 * place,
            "served": SERVED_A_SECOND[name] * (at.timestamp() - 1.7e9),
            "debt": debts[place],
            "weight": weight,
        }
        for place, (name, weight) in enumerate(waiting.items())
    }
    endpoint = {
        "available": True,
        "max_running": 16,
        "max_load": 60_000.0,
        "simulated": True,
        "version": "0.32.0+simulated",
        "fingerprint": "4be1c2a07d",
        "engine": {"running": 6.0, "waiting": 0.0, "memory": 0.62, "prefix_hit_rate": 0.31},
    }
    lane = {"queued": 9, "running": 9, "oldest_wait_s": 1.8, "credit": 120.0, "served": 99_812.0}
    budget = {
        "account": "tenant:acme/hourly",
        "name": "hourly",
        "kind": "sustained",
        "limit": 5_000_000.0,
        "used": 4_100_000.0,
        "reserved": 3200.0,
        "remaining": 896_800.0,
        "resets_at": "2026-11-29T19:00:00Z",
    }
    return {
        "gateway": "host-a:4711",
        "at": at.isoformat(),
        "revision": 1,
        "version": 1,
        "state": "local",
        "pools": {
            "demo-chat": {
                "endpoints": {
                    "http://127.0.0.1:9101/v1": {**endpoint, "running": 6, "load": 41_000.0},
                    "http://127.0.0.1:9102/v1": {**endpoint, "running": 3, "load": 12_400.0},
                },
                "lanes": {"interactive-standard": {**lane, "tenants": tenants}},
                "bound_units": 12_000.0,
            },
            "org/code-7b": {
                "endpoints": {
                    "http://127.0.0.1:9103/v1": {
                        "available": False,
                        "auto": True,
                        "priority_ignored": True,
                        "running": 0,
                        "load": 0.0,
                        "max_running": 16,
                        "max_load": 60_000.0,
                    }
                },
                "lanes": {},
                "bound_units": 0.0,
            },
        },
        "tenants": {
            name: {
                "running": 3,
                "queued": 2 + place,
                "budgets": [budget] if name == "acme" else [],
            }
            for place, name in enumerate(waiting)
        },
    }


def seed_samples(until: datetime | None = None, minutes: int = 60) -> None:
    """One sample each 5 s, the last one now."""
    until = until or datetime.now(UTC)
    moments = [until - timedelta(seconds=5 * step) for step in range(minutes * 12, -1, -1)]
    GatewaySample.objects.bulk_create(
        GatewaySample(gateway="host-a:4711", at=at, state=live_state(at, step / 60))
        for step, at in enumerate(moments)
    )
    note(until)
