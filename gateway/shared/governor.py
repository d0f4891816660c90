"""Admission on the shared server: reserve, queue and grant in one round trip (admit.lua)."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from msgspec.structs import replace

from gateway.admission import Plan
from gateway.governor import AdmissionRefused, NoPlace, Overloaded, Place
from metering.core import refusals
from metering.core.hold import Admitted, RateState, Refused
from metering.journal import OpenEntry
from metering.shared import wire
from metering.shared.accounts import SharedAccounts
from metering.shared.library import LOADED, prefix
from scheduling.core.model import Grant
from scheduling.seam import NotGranted
from scheduling.shared.link import StateUnavailable
from scheduling.shared.scheduler import SharedScheduler
from scheduling.shared.wire import Answer
from tenants.core.snapshot import LanePolicy

ASKED_AGAIN = ("fenced", "empty")  # the scheduler registers anew, and asks once more


class NotLoaded(StateUnavailable):
    """The server has forgotten the counters, or that this gateway lives; nothing was taken."""


class Admission:
    """`scheduling.shared.scheduler.Through`: one request's call of `admit`."""

    function = "admit"

    def __init__(self, plan: Plan, accounts: SharedAccounts, scheduler: SharedScheduler) -> None:
        self._plan = plan
        self._accounts = accounts
        self._scheduler = scheduler
        self._timer: asyncio.TimerHandle | None = None
        self.verdict: Admitted | None = None
        self.lane: LanePolicy = plan.lane
        self._message = accounts.begin(plan.hold, plan.at)

    @property
    def patience_s(self) -> float:
        """0: it takes a place at once or none. Else the longest that it could wait in any lane."""
        if self._plan.hold.limits.max_queued == 0:
            return 0.0
        return max(self._plan.lane.max_queue_seconds, self._plan.lowest.max_queue_seconds)

    def payload(self) -> list[Any]:
        plan, self._message.replica = self._plan, self._accounts.replica
        rule = [plan.on_overload, float(plan.lane.max_queue_seconds), plan.lowest.name]
        return [prefix(plan.hold.tenant), self._message, rule, LOADED]

    def answered(self, answer: Answer) -> Exception | None:
        status = answer[0]
        if status in ASKED_AGAIN:
            return None
        if status == "unloaded":
            return NotLoaded("the counters are not loaded")
        verdict = self._accounts.decided(self._plan.hold, self._plan.at, answer[3])
        if isinstance(verdict, Refused):
            return AdmissionRefused(verdict)
        self.verdict = verdict
        return self._decided(status, *answer[2:])

    def _decided(
        self, status: str, detail: Any, verdict: Any, lane: str, wait_s: Any, rates: Any
    ) -> Exception | None:
        plan = self._plan
        self.lane = plan.lane if lane == plan.lane.name else plan.lowest
        if status == "queued":
            self._wait_no_longer_than(self.lane.max_queue_seconds)
        elif status != "running":
            self._accounts.forget(plan.hold.request_id)  # it was taken back in the same call
        if status == "overloaded":
            return Overloaded(wait_s, plan.lane)
        if status == "dropped" and detail == "queue_timeout":
            told = wire.rate_state(plan.hold.limits, rates)
            return AdmissionRefused(refusals.no_waiting(plan.hold, told))
        return None

    def _wait_no_longer_than(self, seconds: float) -> None:
        waiter = self._scheduler.waiters.get(self._plan.hold.request_id)
        if waiter is not None and waiter.ticket.lane != self.lane.name:
            waiter.ticket = replace(waiter.ticket, lane=self.lane.name)
        if seconds < self.patience_s and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(
                seconds, self._scheduler.drop, self._plan.hold.request_id, "queue_timeout"
            )

    def over(self) -> None:
        if self._timer is not None:
            self._timer.cancel()


class SharedGovernor:
    """`gateway.governor.Governor` while the server is in reach."""

    def __init__(self, accounts: SharedAccounts, scheduler: SharedScheduler) -> None:
        self.accounts = accounts
        self.scheduler = scheduler

    async def admit(self, plan: Plan) -> Place:
        """
        Raises:
            AdmissionRefused, Overloaded, NoPlace
            StateUnavailable: nothing stays taken.
        """
        began = time.monotonic()
        admission = Admission(plan, self.accounts, self.scheduler)
        try:
            grant = await self.scheduler.acquire(plan.ticket, admission.patience_s, admission)
        except NotLoaded:  # not by this call; an earlier one's answer may have been lost
            self.scheduler.call("abandon", plan.ticket.pool, plan.ticket.request_id)
            self.accounts.release(plan.hold.request_id)
            raise
        except NotGranted as lost:
            self.accounts.release(plan.hold.request_id)
            raise NoPlace(lost.reason, admission.lane) from None
        except BaseException:
            self.accounts.release(plan.hold.request_id)
            raise
        finally:
            admission.over()
        verdict = admission.verdict or Admitted(RateState())
        waited_s = time.monotonic() - began
        return Place(grant, admission.lane, waited_s, verdict.rates, verdict.alerts, verdict.tokens)

    async def elsewhere(self, request_id: str, avoid: str) -> Grant | None:
        try:
            return await self.scheduler.retry_elsewhere(request_id, avoid)
        except StateUnavailable:
            return None

    def asked(self, entry: OpenEntry) -> None:
        self.accounts.asked(entry.request_id, wire.encode_json(entry).decode())

    def charge(self, request_id: str, tokens: int, cost: float) -> None:
        self.scheduler.charge(request_id, cost)
        self.accounts.charge(request_id, tokens, cost)

    def settle(self, request_id: str, tokens: int, cost: float) -> None:
        """Both go out in one round trip."""
        self.scheduler.settle(request_id, cost)
        self.accounts.settle(request_id, tokens, cost)
