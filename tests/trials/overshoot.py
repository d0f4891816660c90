"""Two hundred at the same instant on a budget with room for twenty, at every place of a budget.

.venv/bin/python -m tests.trials.overshoot [--requests 200] [--room 20]
"""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import django
import uvloop

from tests.trials.caller import Call, body
from tests.trials.mixed import load
from tests.trials.product import policy, product
from tests.trials.truths import Truths, counters, main

OUT = 10
HOLD_S = 1.0  # all of them have come by the time that the first one ends


def asked() -> bytes:
    """Whose estimate is what it costs, as far as an estimate can be: the stub tells no usage."""
    return body({"usage": False, "out": OUT, "hold": HOLD_S}, max_tokens=OUT, stream=True)


def cap(room: int, unit: float) -> dict[str, Any]:
    return {"name": "cap", "kind": "sustained", "cost": room * unit, "period": "month"}


def limited(room: int, unit: float, tokens: int) -> Any:
    def made(stub_port: int) -> dict[str, Any]:
        monthly = cap(room, unit)
        bucket = {"name": "cap", "kind": "burst", "cost": room * unit, "refill_per_second": 0.001}
        found = policy(stub_port)
        found["pools"][0]["capacity"]["max_running"] = 1000
        found["tenants"] = [
            {"name": "tenant", "tier": "open", "budgets": [monthly]},
            {"name": "bucket", "tier": "open", "budgets": [bucket]},
            {"name": "minute", "tier": "open", "limits": {"tokens_per_minute": room * tokens}},
            {
                "name": "parent",
                "tier": "open",
                "applications": [{"name": "app", "budgets": [monthly]}, {"name": "keyed"}],
            },
        ]
        return found

    return made


OWNERS = ("tenant", "bucket", "minute", "parent/app", "parent/keyed")


def trial(folder: Path, requests: int, room: int) -> Truths:
    truths = Truths()
    tokens = tokens_of_one()
    unit = float(tokens + OUT)
    owners = {owner: [cap(room, unit)] if owner.endswith("keyed") else [] for owner in OWNERS}
    with product(folder, limited(room, unit, tokens), owners) as running:
        for owner in OWNERS:
            calls = [Call(running.keys[owner], asked(), owner) for _ in range(requests)]
            uvloop.run(load(running, calls, requests, random.Random(0)))
            admitted = sum(call.status == 200 for call in calls)
            truths.note(f"{owner}: sent at once, room for", f"{requests}, {room}")
            truths.at_most(f"{owner}: admitted", admitted, room)
            truths.at_least(f"{owner}: admitted", admitted, 1)
            truths.must(
                f"{owner}: refused", sum(c.status == 429 for c in calls), requests - admitted
            )
        running.settled(requests * len(OWNERS))
        counters(truths, running)
        costs = {row["cost"] for row in running.rows() if row["status"] == 200}
        truths.must("costs of one", costs, {unit})
        bucket = running.budgets()["tenant:bucket/cap"]["used"]
        for account, used in {"tenant:bucket/cap": bucket, **running.windows()}.items():
            if account.endswith("/cap"):
                name = "key/cap" if account.startswith("key:") else account
                truths.at_most(f"{name}: used", used, room * unit)
    return truths


def tokens_of_one() -> int:
    """The prompt as the gateway estimates it at first, and what the stub writes; a token of its
    output costs two units."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "fairlane.settings")
    django.setup()
    from gateway.estimates import Estimates
    from gateway.wire.request import parse

    prompt = Estimates().prompt_tokens("chat", parse("chat", asked()))
    return prompt + OUT


if __name__ == "__main__":
    main(__doc__, trial, requests=200, room=20)
