"""The one seam to shared state: accounts and scheduler behind three calls.

`LocalGovernor` holds both in this process. A shared implementation answers the same three calls
from Redis, `admit` in one round trip; the gateway does not know which one it has.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Protocol

import msgspec
from msgspec.structs import replace

from gateway.admission import Plan
from metering.core import refusals
from metering.core.accounts import LocalAccounts
from metering.core.hold import Admitted, Hold, RateState, Refused
from metering.journal import OpenEntry
from scheduling.core.model import DropReason, Grant, Ticket
from scheduling.runtime import LocalScheduler
from scheduling.seam import NotGranted
from tenants.core.snapshot import LanePolicy


class AdmissionRefused(Exception):
    """A limit or budget decided against the request; nothing was taken anywhere."""

    def __init__(self, verdict: Refused) -> None:
        super().__init__(verdict.message)
        self.verdict = verdict


class Overloaded(Exception):
    """The predicted wait is past the lane's limit, and the tier says to reject then."""

    def __init__(self, wait_s: float, lane: LanePolicy) -> None:
        super().__init__(lane.name)
        self.wait_s = wait_s
        self.lane = lane


class NoPlace(NotGranted):
    """It left the queue of `lane` without a place; `reason` says why."""

    def __init__(self, reason: DropReason, lane: LanePolicy) -> None:
        super().__init__(reason)
        self.lane = lane


class StateLost(Exception):
    """The shared state is out of reach, and the setting says to admit nobody then."""


class Place(msgspec.Struct, frozen=True):
    """What an admitted request holds while it runs."""

    grant: Grant
    lane: LanePolicy
    queue_s: float
    rates: RateState
    alerts: tuple[str, ...] = ()  # accounts that it was let in past
    tokens: int = 0  # that it holds in the minute


class Governor(Protocol):
    async def admit(self, plan: Plan) -> Place:
        """Reserve, queue, and wait for a place. When it raises, or is cancelled, nothing is held.

        Raises:
            AdmissionRefused, Overloaded, NoPlace, StateLost
        """

    async def elsewhere(self, request_id: str, avoid: str) -> Grant | None:
        """Another endpoint with room for a request whose endpoint failed before it answered."""

    def asked(self, entry: OpenEntry) -> None:
        """An engine is about to be asked: from now on it ends by `settle`, or by its record."""

    def charge(self, request_id: str, tokens: int, cost: float) -> None:
        """Tokens and service units received so far, all told."""

    def settle(self, request_id: str, tokens: int, cost: float) -> None:
        """The end, whatever it was: actual use replaces what was held. Only the first counts."""


class LocalGovernor:
    def __init__(
        self,
        accounts: LocalAccounts,
        scheduler: LocalScheduler,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.accounts = accounts
        self.scheduler = scheduler
        self._clock = clock

    async def admit(self, plan: Plan) -> Place:
        began = self._clock()
        hold = plan.hold
        if hold.limits.max_queued is not None:
            hold = replace(hold, queued=self.scheduler.queued(hold.tenant))
        if hold.soft_limits and self.scheduler.backlogged(plan.pool.model, plan.lane.name):
            hold = replace(hold, soft_limits=frozenset())
        verdict = self.accounts.reserve(hold, began, plan.at)
        if isinstance(verdict, Refused):
            raise AdmissionRefused(verdict)
        try:
            lane = self._lane(plan, verdict)
            ticket = plan.ticket
            if lane.name != ticket.lane:
                ticket = replace(ticket, lane=lane.name)
            grant = await self._wait(hold, ticket, lane.max_queue_seconds)
        except NotGranted as lost:
            self._release(hold.request_id)
            raise NoPlace(lost.reason, lane) from None
        except BaseException:
            self._release(hold.request_id)
            raise
        waited_s = self._clock() - began
        return Place(grant, lane, waited_s, verdict.rates, verdict.alerts, verdict.tokens)

    async def _wait(self, hold: Hold, ticket: Ticket, most_s: float) -> Grant:
        if hold.limits.max_queued != 0:
            return await self.scheduler.acquire(ticket, most_s)
        try:
            return await self.scheduler.acquire(ticket, 0.0)
        except NotGranted as lost:
            if lost.reason != "queue_timeout":
                raise
            self._release(hold.request_id)  # before its rates are told
            rates = self.accounts.rates(hold.tenant, hold.limits, self._clock())
            raise AdmissionRefused(refusals.no_waiting(hold, rates)) from None

    def _lane(self, plan: Plan, verdict: Admitted) -> LanePolicy:
        if verdict.demote:
            return plan.lowest
        if plan.on_overload == "queue" or verdict.goes_on:  # nothing sheds in its middle
            return plan.lane
        wait = self.scheduler.expected_wait_s(plan.pool.model, plan.lane.name)
        if wait <= plan.lane.max_queue_seconds:
            return plan.lane
        if plan.on_overload == "demote":
            return plan.lowest
        raise Overloaded(wait, plan.lane)

    def _release(self, request_id: str) -> None:
        self.accounts.release(request_id, self._clock(), datetime.now(UTC))

    async def elsewhere(self, request_id: str, avoid: str) -> Grant | None:
        return await self.scheduler.retry_elsewhere(request_id, avoid)

    def asked(self, entry: OpenEntry) -> None:
        """The journal knows."""

    def charge(self, request_id: str, tokens: int, cost: float) -> None:
        self.scheduler.charge(request_id, cost)
        self.accounts.charge(request_id, tokens, cost, self._clock())

    def settle(self, request_id: str, tokens: int, cost: float) -> None:
        self.scheduler.settle(request_id, cost)
        self.accounts.settle(request_id, tokens, cost, self._clock(), datetime.now(UTC))
