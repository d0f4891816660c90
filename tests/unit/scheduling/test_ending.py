"""The end of tasks that speak to Redis."""

from __future__ import annotations

import asyncio

from scheduling.shared.ending import end


async def test_a_task_that_takes_a_cancellation_for_itself_is_told_again() -> None:
    told = 0

    async def deaf() -> None:
        nonlocal told
        while True:
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                told += 1
                if told == 2:
                    raise

    tasks = [asyncio.create_task(deaf()), asyncio.create_task(asyncio.sleep(0))]
    await asyncio.sleep(0)
    async with asyncio.timeout(60):
        await end(tasks)
    assert told == 2
    assert all(task.done() for task in tasks)


async def test_where_nothing_runs_there_is_nothing_to_end() -> None:
    await end([])
