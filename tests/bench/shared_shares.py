"""Three gateways, three tenants with weights 4:2:1, unevenly spread over them: who gets how much.

    .venv/bin/python -m tests.bench.shared_shares [--seconds 30]

Three `manage.py serve --role gateway` on one PostgreSQL, one simulated engine with 12 slots, closed
loops over sockets; everybody is backlogged at every gateway where they are at all. Twice: with one
shared scheduler on Redis, and with each gateway fair for itself with a third of the slots. Shares
are of `cost` in the usage records, in the readings of tests.bench.fair_share.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import uvloop
import yaml

from tests.acceptance.shared.deployment import Deployment, deployment, policy
from tests.bench.fair_share import PROFILE, READINGS, WARM_S, Window, costs
from tests.bench.load import lorem, user

SLOTS, GATEWAYS = 12, 3
WEIGHTS = {"four": 4, "two": 2, "one": 1}
CALLERS = {"four": (30, 8, 0), "two": (10, 10, 10), "one": (0, 0, 24)}  # at each gateway
ASKED = {"four": (300, 16, 1), "two": (15, 40, 80), "one": (120, 24, 32)}  # words; out, spread
HEAD = f"{'cost, service units':38}{'four':>10}{'two':>10}{'one':>10}{'shares':>22}{'most off':>10}"


def document(slots: int, url: str, tenants: dict[str, dict[str, Any]]) -> dict[str, Any]:
    made = policy(url, tenants, chat=slots)
    made["lanes"][0]["max_queue_seconds"] = 600
    made["pools"][0]["cost"] = {"input": 1, "cached_input": 1, "output": 2}
    return made


def asked(tenant: str, number: int) -> bytes:
    words, least, spread = ASKED[tenant]
    return lorem("chat", number, words, least + number * 37 % spread)


def asked_by(tenant: str, number: int) -> Iterator[bytes]:
    return (asked(tenant, each) for each in count(number + 1000, 1000))


async def drive(deployed: Deployment, seconds: float) -> Window:
    over = asyncio.Event()
    places = [
        (tenant, deployed.gateways[gateway].port)
        for tenant, counts in CALLERS.items()
        for gateway, count in enumerate(counts)
        for _ in range(count)
    ]
    users = [
        asyncio.create_task(user(port, deployed.keys[tenant], asked_by(tenant, number), over))
        for number, (tenant, port) in enumerate(places)
    ]
    await asyncio.sleep(WARM_S)
    start = datetime.now(UTC)
    await asyncio.sleep(seconds)
    end = datetime.now(UTC)
    over.set()
    await asyncio.gather(*users)
    return Window(start, end, [], {})


def measure(folder: Path, seconds: float, alone: bool) -> tuple[list[dict[str, Any]], Window]:
    profile = folder / "scarce.yaml"
    profile.write_text(yaml.safe_dump({**PROFILE, "max_num_seqs": SLOTS}))
    made = partial(document, SLOTS // GATEWAYS if alone else SLOTS)
    tenants: dict[str, dict[str, Any]] = {n: {"weight": w} for n, w in WEIGHTS.items()}
    with deployment(
        folder, tenants, GATEWAYS, document=made, profile=str(profile), alone=alone
    ) as deployed:
        window = uvloop.run(drive(deployed, seconds))
        time.sleep(1)  # what has ended is exported within a second
        return deployed.gateways[0].records(), window


def show(records: list[dict[str, Any]], window: Window) -> None:
    whole = sum(WEIGHTS.values())
    for reading, weigh in READINGS.items():
        units = costs(records, window, weigh)
        shares = {name: units[name] / sum(units.values()) for name in WEIGHTS}
        off = [shares[name] * whole / weight - 1 for name, weight in WEIGHTS.items()]
        cells = "".join(f"{units[name]:>10.0f}" for name in WEIGHTS)
        told = " : ".join(f"{share * whole:.2f}" for share in shares.values())
        print(f"{reading:38}{cells}{told:>22}{max(off, key=abs):>+10.1%}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=30)
    given = parser.parse_args()
    print(HEAD)
    for alone, name in ((False, "one scheduler on Redis"), (True, "each gateway for itself")):
        with tempfile.TemporaryDirectory(prefix="fairlane-bench-") as folder:
            found = measure(Path(folder), given.seconds, alone)
        print(f"-- {name}, load average {os.getloadavg()[0]:.1f}")
        show(*found)


if __name__ == "__main__":
    main()
