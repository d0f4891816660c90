"""`serve` in front of one real engine, with pools that differ in what the tests need."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.acceptance.gateway.rig import LANES, Rig, pool, prepare
from tests.acceptance.stack import Stack
from tests.engines.process import RealEngine

OPEN = {"max_running": 64, "max_running_tokens": 1_000_000}  # more than the engine serves at once
POOLS: dict[str, dict[str, Any]] = {
    "real": {},
    "shared": {"isolate_prefix_cache": False},
    "plain": {"engine": "openai"},
    "body": {"engine": "vllm-body"},
    "counted": {"tokenizer": {"kind": "engine"}},
    "auto": {"capacity": "auto"},
}


def policy(engine: RealEngine) -> dict[str, Any]:
    return {
        "version": 1,
        "lanes": LANES,
        "tiers": [
            {
                "name": "open",
                "lane": "normal",
                "allowed_lanes": [str(lane["name"]) for lane in LANES],
            }
        ],
        "pools": [
            pool(name, [engine.url], 64, **{"engine": engine.kind, **fields})
            for name, fields in POOLS.items()
            if engine.kind == "vllm" or name != "body"
        ],
        "tenants": [],
    }


@contextmanager
def rig(folder: Path, engine: RealEngine) -> Iterator[Rig]:
    made = Stack(folder, [engine.url])
    token = prepare(made, policy(engine))
    made.start()
    running = Rig(made, token, [])
    try:
        yield running
    finally:
        running.admin.close()
        if made.serving is not None:
            made.stop()
