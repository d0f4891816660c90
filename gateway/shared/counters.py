"""The shared scheduler's virtual counters, kept in the database for a Redis that loses them.

1. One gateway keeps them, with the moment and what each open request had been charged by then.
2. A Redis that has lost them gets them back with what the ledger has counted since, by whichever
   gateway is first (`restore` in scheduling/shared/calls.lua takes the first and no other). Nobody
   is admitted before.
3. What is older than `OLDEST` says nothing any more: all begin alike.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from functools import partial

import structlog

from gateway.state import InThread
from metering.restore import read_served
from scheduling import kept
from scheduling.shared import keeping
from scheduling.shared.scheduler import SharedScheduler

OLDEST = timedelta(hours=1)
PAUSE_S = 0.001  # for each tenant and request: asking takes the server some µs of each

log = structlog.get_logger("fairlane.gateway")


class VirtualCounters:
    def __init__(self, scheduler: SharedScheduler, in_thread: InThread) -> None:
        self._scheduler = scheduler
        self._in_thread = in_thread
        self._due: dict[str, float] = {}  # by pool: not again before

    async def keep(self) -> None:
        """
        Raises:
            StateUnavailable
        """
        for pool in list(self._scheduler.config.pools):
            if time.monotonic() >= self._due.get(pool, 0.0):
                await self._keep(pool)

    async def _keep(self, pool: str) -> None:
        at = datetime.now(UTC)
        found = await keeping.ask(self._scheduler, pool)
        if found is not None:
            await self._in_thread(lambda: kept.save(pool, found, at))
            self._due[pool] = time.monotonic() + PAUSE_S * found.size

    async def restore(self) -> None:
        """
        Raises:
            StateUnavailable: also where another release's records lie there.
        """
        for pool in (await keeping.unwhole(self._scheduler)).pools:
            counters, since = await self._in_thread(partial(last_known, pool))
            first = await keeping.restore(self._scheduler, pool, counters, since)
            if first and counters.lanes:
                log.warning("virtual counters are as before", pool=pool, since=len(since))


def last_known(pool: str) -> tuple[keeping.Kept, list[keeping.Since]]:
    """What was kept, and what the ledger has since."""
    found = kept.find(pool, datetime.now(UTC) - OLDEST)
    if found is None:
        return keeping.NOTHING, []
    return found.kept, read_served(pool, found.at, found.kept.open)
