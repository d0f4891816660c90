"""What the gateway may ask of a scheduler, whether it lives in this process or in Redis."""

from __future__ import annotations

from typing import Any, Protocol

from scheduling.core.learning import Held
from scheduling.core.model import DropReason, Grant, SchedulerConfig, Ticket


class NotGranted(Exception):
    """The request left the queue without a grant; `reason` says why."""

    def __init__(self, reason: DropReason) -> None:
        super().__init__(reason)
        self.reason: DropReason = reason


class Scheduler(Protocol):
    """One writer behind it. `charge` and `settle` return at once; unknown ids are nothing."""

    async def acquire(self, ticket: Ticket, timeout_s: float) -> Grant:
        """Wait for a place. Cancelling the awaiting task takes the request out of the queue (or
        gives the place back when it was granted meanwhile, charging nothing).

        Raises:
            NotGranted: timed out after `timeout_s`, or policy took away its pool, lane or tenant.
        """

    def charge(self, request_id: str, cost: float) -> None:
        """Service received so far, units, all told; counts only past what is charged already."""

    def settle(self, request_id: str, cost: float) -> None:
        """The request is over: counters move by actual − charged, the slot is free. Only the
        first call for an id counts."""

    def configure(self, config: SchedulerConfig) -> None:
        """Take a new configuration; waiters that lost their pool, lane or tenant get NotGranted."""

    def set_available(self, pool: str, endpoint: str, available: bool) -> None:
        """Health: an endpoint that is not available takes nothing new."""

    def set_capacity(self, pool: str, endpoint: str, max_running: int, max_load: float) -> None:
        """What an endpoint can take, as learnt from it. A configuration that comes later must name
        the same, or it counts again."""

    def held(self, pool: str, endpoint: str) -> Held | None:
        """What this process runs on an endpoint, and whether more waits for its pool; None where
        there is no such endpoint."""

    async def retry_elsewhere(self, request_id: str, avoid: str) -> Grant | None:
        """Move a granted request to another endpoint that has room now, keeping its charge;
        None when there is none (the request stays where it was)."""

    def drop(self, request_id: str, reason: DropReason) -> bool:
        """Send a waiting request away: its `acquire` raises NotGranted(reason). False when it
        does not wait (any more)."""

    def waiting(self) -> list[Ticket]:
        """The requests that are queued, in the order of their arrival."""

    def queued(self, tenant: str) -> int:
        """How many of a tenant's requests wait, over all pools."""

    def backlogged(self, pool: str, lane: str) -> bool:
        """Whether somebody waits, in this lane or a better one, whom only the pool holds back."""

    def expected_wait_s(self, pool: str, lane: str) -> float:
        """How long the lane's backlog will take at the pool's measured pace; 0 while unknown."""

    def live(self) -> dict[str, Any]:
        """The state as plain JSON values; its shape is in docs/architecture.md, "Live state"."""
