"""What is asked of every way, and the policy that Fairlane has while it is asked."""

from __future__ import annotations

import json
from typing import Any

from tests.acceptance.stack import demo_policy

PATH = "/v1/chat/completions"
STREAMS = 64


def body(**more: Any) -> bytes:
    asked = {
        "model": "demo-chat",
        "messages": [
            {"role": "system", "content": "You are a helpful assistant."},
            {"role": "user", "content": "word " * 100},
        ],
        "temperature": 0.7,
        **more,
    }
    return json.dumps(asked, separators=(",", ":")).encode()


PLAIN = body(max_tokens=64)
STREAM = body(max_tokens=128, stream=True)
SILENT = body(max_tokens=1, stream=True)


def policy(engine: str) -> dict[str, Any]:
    """The demo's, every kind of limit and budget in force, none of them reached."""
    made = demo_policy([engine])
    made["pools"][0]["capacity"] = {"max_running": 2000, "max_running_tokens": 10**8}
    most = {"max_running": 2000, "max_queued": 2000, "max_input_tokens": 32768}
    rates = {"requests_per_minute": 10**6, "tokens_per_minute": 10**9}
    made["tiers"][0]["limits"] = {**most, **rates, "max_output_tokens": 4096}
    made["tiers"][0]["budgets"] = [
        {"name": "burst", "kind": "burst", "cost": 10**9, "refill_per_second": 10**6},
        {"name": "hourly", "kind": "sustained", "cost": 10**12, "period": "hour"},
        {"name": "monthly", "kind": "sustained", "cost": 10**12, "period": "month"},
    ]
    return made
