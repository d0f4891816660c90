"""The scheduler of one process: the core, a clock, and a future for each request that waits.

1. One writer: every change happens on the event loop's thread, without an await inside.
2. Every change is followed by `_turn`, so nothing that could run is left waiting.
3. A waiter hears exactly one of: its grant, NotGranted, or its own cancellation; a grant that
   nobody can take any more is given back at once and charges nothing.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

from scheduling.core.dispatcher import Core
from scheduling.core.figures import live
from scheduling.core.learning import Held
from scheduling.core.model import DropReason, Grant, SchedulerConfig, Ticket
from scheduling.seam import NotGranted


class LocalScheduler:
    """`scheduling.seam.Scheduler` with all of its state in this process."""

    def __init__(
        self, config: SchedulerConfig, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._clock = clock
        self._core = Core(config, clock())
        self._waiters: dict[str, asyncio.Future[Grant]] = {}

    async def acquire(self, ticket: Ticket, timeout_s: float) -> Grant:
        refused = self._core.enqueue(ticket, self._clock())
        if refused is not None:
            raise NotGranted(refused.reason)
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[Grant] = loop.create_future()
        self._waiters[ticket.request_id] = waiter
        self._turn()
        if waiter.done():
            return waiter.result()
        timer = loop.call_later(timeout_s, self.drop, ticket.request_id, "queue_timeout")
        try:
            return await waiter
        except asyncio.CancelledError:
            self._abandon(ticket.request_id, waiter)
            raise
        finally:
            timer.cancel()

    def charge(self, request_id: str, cost: float) -> None:
        self._core.charge(request_id, cost)

    def settle(self, request_id: str, cost: float) -> None:
        if self._core.settle(request_id, cost):
            self._turn()

    def drop(self, request_id: str, reason: DropReason) -> bool:
        if not self._core.cancel(request_id):
            return False
        self._refuse(request_id, reason)
        self._turn()
        return True

    def configure(self, config: SchedulerConfig) -> None:
        for dropped in self._core.configure(config, self._clock()):
            self._refuse(dropped.request_id, dropped.reason)
        self._turn()

    def set_available(self, pool: str, endpoint: str, available: bool) -> None:
        self._core.set_available(pool, endpoint, available)
        self._turn()

    def set_capacity(self, pool: str, endpoint: str, max_running: int, max_load: float) -> None:
        self._core.set_capacity(pool, endpoint, max_running, max_load)
        self._turn()

    def held(self, pool: str, endpoint: str) -> Held | None:
        return self._core.held(pool, endpoint)

    async def retry_elsewhere(self, request_id: str, avoid: str) -> Grant | None:
        grant = self._core.retry_elsewhere(request_id, avoid)
        self._turn()
        return grant

    def waiting(self) -> list[Ticket]:
        return self._core.waiting()

    def queued(self, tenant: str) -> int:
        account = self._core.accounts.get(tenant)
        return account.queued if account is not None else 0

    def backlogged(self, pool: str, lane: str) -> bool:
        return self._core.backlogged(pool, lane)

    def expected_wait_s(self, pool: str, lane: str) -> float:
        return self._core.expected_wait_s(pool, lane)

    def live(self) -> dict[str, Any]:
        return live(self._core, self._clock())

    @property
    def idle(self) -> bool:
        return self._core.idle

    def _turn(self) -> None:
        grants = self._core.dispatch(self._clock())
        while grants:
            given_back = [grant for grant in grants if not self._grant(grant)]
            for grant in given_back:
                self._core.settle(grant.request_id, 0.0)
            grants = self._core.dispatch(self._clock()) if given_back else []

    def _grant(self, grant: Grant) -> bool:
        """False when its task was cancelled but has not run since."""
        waiter = self._waiters.pop(grant.request_id)
        if waiter.cancelled():
            return False
        waiter.set_result(grant)
        return True

    def _refuse(self, request_id: str, reason: DropReason) -> None:
        waiter = self._waiters.pop(request_id)
        if not waiter.cancelled():
            waiter.set_exception(NotGranted(reason))

    def _abandon(self, request_id: str, waiter: asyncio.Future[Grant]) -> None:
        """The waiting task was cancelled: out of the queue, or give back what came meanwhile."""
        if waiter.cancelled():
            if self._waiters.pop(request_id, None) is not None:
                self._core.cancel(request_id)
        elif waiter.exception() is None:
            self._core.settle(request_id, 0.0)
        self._turn()
