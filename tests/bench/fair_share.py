"""Two tenants with weights 2:1 and different requests, both backlogged: who gets how much.

    .venv/bin/python -m tests.bench.fair_share [--seconds 20]

`manage.py serve` and a simulated engine as processes of their own, closed loops over sockets. The
engine is slow enough (8 slots, about 9 ms a step) that slots are scarce and this machine is not.
Shares are of `cost` in the usage records, in three readings of the same window, and of what the
scheduler's live state says it served. Slots are sampled from the engine's `/metrics`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

import uvloop
import yaml

from tests.acceptance.stack import Stack, stack
from tests.bench.load import Caller, connect, lorem, user

SLOTS = 8
WARM_S = 6.0  # until estimates have learnt what is asked here
USERS = 20  # a tenant; with 8 slots, at least 12 of each always wait
SAMPLE_S = 0.05
WEIGHTS = {"reader": 2.0, "writer": 1.0}
PROFILE = {
    "name": "scarce",
    "max_num_seqs": SLOTS,
    "max_num_batched_tokens": 2048,
    "num_gpu_blocks": 8192,
    "max_model_len": 16384,
    "step": {"base_ms": 8, "prefill_token_us": 15, "sequence_us": 100},
}
RUNNING = re.compile(rb"^vllm:num_requests_running\{[^}]*\} ([0-9.e+]+)", re.MULTILINE)


def policy(urls: list[str]) -> dict[str, Any]:
    tier = {
        "name": "only",
        "weight": 1,
        "lane": "standard",
        "allowed_lanes": ["standard"],
        "limits": {"max_running": 64, "max_queued": 1000},
        "on_overload": "queue",
        "models": ["*"],
    }
    return {
        "version": 1,
        "lanes": [{"name": "standard", "rank": 0, "engine_priority": 0, "max_queue_seconds": 600}],
        "tiers": [tier],
        "pools": [
            {
                "model": "demo-chat",
                "endpoints": [{"url": url} for url in urls],
                "capacity": {"max_running": SLOTS, "max_running_tokens": 100_000},
                "cost": {"input": 1, "cached_input": 1, "output": 2},
            }
        ],
        "tenants": [
            {"name": name, "tier": "only", "weight": weight} for name, weight in WEIGHTS.items()
        ],
    }


def asked(tenant: str, number: int) -> bytes:
    """`reader`: some 600 tokens in, 16 out. `writer`: 20 in, 80 out, spread by a half."""
    words, most = (500, 16) if tenant == "reader" else (15, 40 + number * 37 % 80)
    return lorem("demo-chat", number, words, most)


def asked_by(tenant: str, number: int) -> Iterator[bytes]:
    return (asked(tenant, each) for each in count(number + USERS, USERS))


async def sample(engine: str, over: asyncio.Event, began: float) -> list[tuple[float, int]]:
    """(time, running) as the engine says."""
    port = int(engine.rsplit(":", 1)[1].split("/")[0])
    scrape: Caller = await connect(port)
    found = []
    while not over.is_set():
        body = (await scrape.ask(b"GET /metrics HTTP/1.1\r\nHost: bench\r\n\r\n")).body
        running = RUNNING.search(body)
        assert running is not None
        found.append((time.monotonic() - began, int(float(running[1]))))
        await asyncio.sleep(SAMPLE_S)
    scrape.transport.close()
    return found


@dataclass
class Window:
    start: datetime
    end: datetime
    busy: list[int]
    live: dict[str, float]  # service units by tenant


async def drive(served: Stack, keys: dict[str, str], seconds: float) -> Window:
    over = asyncio.Event()
    began = time.monotonic()
    users = [
        asyncio.create_task(user(served.port, key, asked_by(tenant, number), over))
        for tenant, key in keys.items()
        for number in range(USERS)
    ]
    sampling = asyncio.create_task(sample(served.engines[0], over, began))
    await asyncio.sleep(WARM_S)
    start, opened, before = datetime.now(UTC), time.monotonic() - began, served_units(served)
    await asyncio.sleep(seconds)
    end, closed, after = datetime.now(UTC), time.monotonic() - began, served_units(served)
    over.set()
    await asyncio.gather(*users)
    busy = [running for at, running in await sampling if opened <= at <= closed]
    return Window(start, end, busy, {name: after[name] - before[name] for name in WEIGHTS})


def served_units(served: Stack) -> dict[str, float]:
    """By the latest sample that the gateway wrote, less than a second old."""
    with sqlite3.connect(f"file:{database(served)}?mode=ro", uri=True) as db:
        row = db.execute("select state from metering_gatewaysample order by at desc limit 1")
        lane = json.loads(row.fetchone()[0])["pools"]["demo-chat"]["lanes"]["standard"]
    return {name: lane["tenants"][name]["served"] for name in WEIGHTS}


def database(served: Stack) -> Path:
    return next(path for path in served.folder.glob("*.sqlite3"))


# --- shares --------------------------------------------------------------------------------------

Weigh = Callable[[datetime, datetime, Window], float]


def ended(began: datetime, done: datetime, window: Window) -> float:
    return float(window.start <= done < window.end)


def started(began: datetime, done: datetime, window: Window) -> float:
    return float(window.start <= began < window.end)


def overlapping(began: datetime, done: datetime, window: Window) -> float:
    inside = min(done, window.end) - max(began, window.start)
    return max(0.0, inside / (done - began))


READINGS: dict[str, Weigh] = {
    "records that ended in the window": ended,
    "records that began to run in it": started,
    "records, by the part that ran in it": overlapping,
}


def costs(records: list[dict[str, Any]], window: Window, weigh: Weigh) -> dict[str, float]:
    found = {record["tenant"]: 0.0 for record in records}
    for record in records:
        at = datetime.fromisoformat(record["at"])
        began = at + timedelta(milliseconds=record["queue_ms"])
        done = at + timedelta(milliseconds=record["e2e_ms"])
        found[record["tenant"]] += record["cost"] * weigh(began, done, window)
    return found


def show(records: list[dict[str, Any]], window: Window) -> None:
    print(f"{'cost, service units':38}{'reader (2)':>12}{'writer (1)':>12}{'ratio':>8}{'off':>8}")
    rows = {name: costs(records, window, weigh) for name, weigh in READINGS.items()}
    rows["the scheduler's own count"] = window.live
    for name, units in rows.items():
        ratio = units["reader"] / units["writer"]
        off = ratio / (WEIGHTS["reader"] / WEIGHTS["writer"]) - 1
        print(f"{name:38}{units['reader']:>12.0f}{units['writer']:>12.0f}{ratio:>8.3f}{off:>+8.1%}")
    inside = [r for r in records if ended_of(r, window)]
    for tenant in WEIGHTS:
        own = [r for r in inside if r["tenant"] == tenant]
        waits = sorted(r["queue_ms"] for r in own)
        means = [
            sum(r[f"{kind}_tokens"] for r in own) / len(own) for kind in ("prompt", "completion")
        ]
        print(
            f"{tenant}: {len(own)} requests of {means[0]:.0f} tokens in and {means[1]:.0f} out, "
            f"queue time p50 {waits[len(waits) // 2]:.0f} ms"
        )
    busy = sum(window.busy) / (SLOTS * len(window.busy))
    print(f"engine slots busy: {busy:.1%} of {SLOTS}, {len(window.busy)} samples")


def ended_of(record: dict[str, Any], window: Window) -> bool:
    done = datetime.fromisoformat(record["at"]) + timedelta(milliseconds=record["e2e_ms"])
    return window.start <= done < window.end


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=20)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="fairlane-bench-") as name:
        folder = Path(name)
        profile = folder / "scarce.yaml"
        profile.write_text(yaml.safe_dump(PROFILE))
        with stack(folder, policy, 1, "--profile", str(profile)) as served:
            keys = {tenant: served.key(tenant) for tenant in WEIGHTS}
            time.sleep(1)  # new keys are in force within a second
            window = uvloop.run(drive(served, keys, given.seconds))
            time.sleep(1)  # and what has ended is exported within one
            show(served.records(), window)


if __name__ == "__main__":
    main()
