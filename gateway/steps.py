"""What a gateway does again and again beside its calls."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import structlog

from gateway import metrics

LAG_PROBE_S = 0.1

log = structlog.get_logger("fairlane.gateway")


async def keep(
    step: Callable[[], Any],
    every_s: float,
    wait: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> None:
    """Run a step again and again; one that fails is logged once until it works again."""
    failing = False
    while True:
        try:
            await step()
            failing = False
        except Exception as error:
            if not failing:
                log.error("background step failed", step=step.__name__, error=repr(error))
            failing = True
        await wait(every_s)


async def measure_lag() -> None:
    loop = asyncio.get_running_loop()
    while True:
        due = loop.time() + LAG_PROBE_S
        await asyncio.sleep(LAG_PROBE_S)
        metrics.loop_lag_seconds.observe(max(0.0, loop.time() - due))
