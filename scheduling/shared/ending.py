"""The end of a task that speaks to Redis."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

AGAIN_S = 0.1


async def end(tasks: Iterable[asyncio.Task[None]]) -> None:
    """Cancel tasks until they have ended.

    Once is not enough: redis-py sends by `asyncio.wait_for`, and Python 3.11's takes a cancellation
    for itself when it comes as the sending is done; the task goes on as if nothing had been said.
    """
    left = {task for task in tasks if not task.done()}
    while left:
        for task in left:
            task.cancel()
        _, left = await asyncio.wait(left, timeout=AGAIN_S)
