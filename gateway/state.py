"""Where counters and queues live: in this process, or on a server that all gateways share.

The gateway asks its state for a governor and a scheduler, keeps it in step with policy and ledger,
and does not know which one it has.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Protocol, TypeVar

from gateway.governor import Governor, LocalGovernor
from metering.core.accounts import LocalAccounts
from metering.corrections import CorrectionFeed
from metering.journal import Journal
from metering.live_check import Cuts
from metering.models import Correction
from metering.restore import load_accounts
from metering.store import BudgetOf
from scheduling.core.model import DropReason, SchedulerConfig
from scheduling.runtime import LocalScheduler
from scheduling.seam import Scheduler
from tenants.core.snapshot import BudgetPolicy, PolicySnapshot

T = TypeVar("T")
Step = tuple[Callable[[], Awaitable[None]], float, str]  # what, how often in seconds, its name
Shown = Mapping[str, Sequence[dict[str, Any]]]  # budgets by tenant


class InThread(Protocol):
    """Database work, on the one thread that holds the gateway's connection."""

    async def __call__(self, work: Callable[[], T]) -> T: ...


@dataclass
class Change:
    """What the ledger says besides, when another policy comes into force."""

    corrections: list[Correction] = field(default_factory=list)
    returning: list[tuple[BudgetPolicy, float]] = field(default_factory=list)


class State(Protocol):
    @property
    def governor(self) -> Governor: ...

    @property
    def scheduler(self) -> Scheduler: ...

    @property
    def name(self) -> str:
        """ "local"; "shared", or what else there is while the shared state is out of reach."""

    @property
    def since(self) -> datetime:
        """When it came to be so."""

    @property
    def fault(self) -> str:
        """Why no call can be let in yet; empty where one can."""

    @property
    def trouble(self) -> str:
        """That, or why the shared state is out of reach of one that runs."""

    async def load(self, snapshot: PolicySnapshot, config: SchedulerConfig, at: datetime) -> None:
        """Before the first request, after the journal of dead gateways was recovered."""

    def open(self, journal: Journal) -> list[Step]:
        """From here on there are requests; what is to be done again and again."""

    def configure(self, config: SchedulerConfig, snapshot: PolicySnapshot) -> None:
        """A policy comes into force, in one step without an await."""

    async def read_change(
        self, old: PolicySnapshot, new: PolicySnapshot, at: datetime
    ) -> Change: ...

    async def take_up(self, change: Change, budget_of: BudgetOf, at: datetime) -> None: ...

    async def look(self, budgets: Mapping[str, Sequence[BudgetPolicy]], at: datetime) -> None:
        """Before `budgets` and `live` are read for others."""

    def budgets(self, budgets: Mapping[str, Sequence[BudgetPolicy]], at: datetime) -> Shown:
        """As `LocalAccounts.budgets`, by tenant."""

    def drop(self, request_id: str, reason: DropReason) -> None:
        """Send a waiting request away."""

    def set_available(self, pool: str, endpoint: str, available: bool) -> None:
        """Health of an endpoint, as this gateway finds it."""

    @property
    def tells(self) -> bool:
        """Whether tenants and their budgets are this gateway's to tell of."""

    def live(self) -> dict[str, Any]:
        """What this gateway has to tell of pools and tenants (docs/architecture.md)."""

    def cut(self, waiting: Collection[str], at: datetime) -> None:
        """The counters as they are, into the journal."""

    async def aclose(self) -> None: ...


class LocalState:
    name = "local"
    fault = trouble = ""
    tells = True

    def __init__(self, gateway: str, in_thread: InThread) -> None:
        self.since = datetime.now(UTC)
        self._gateway = gateway
        self._in_thread = in_thread
        self.accounts = LocalAccounts()
        self.scheduler: LocalScheduler
        self.governor: LocalGovernor

    async def load(self, snapshot: PolicySnapshot, config: SchedulerConfig, at: datetime) -> None:
        now = time.monotonic()
        seen = await self._in_thread(lambda: load_accounts(self.accounts, snapshot, now, at))
        self.corrections = CorrectionFeed(self._gateway, seen)
        self.scheduler = LocalScheduler(config)
        self.governor = LocalGovernor(self.accounts, self.scheduler)

    def open(self, journal: Journal) -> list[Step]:
        self._cuts = Cuts(self._gateway, journal, self.accounts)
        return []

    def configure(self, config: SchedulerConfig, snapshot: PolicySnapshot) -> None:
        self.scheduler.configure(config)

    async def read_change(self, old: PolicySnapshot, new: PolicySnapshot, at: datetime) -> Change:
        counted = self.accounts.sustained()
        found = await self._in_thread(lambda: self.corrections.read_change(counted, old, new, at))
        return Change(*found)

    async def take_up(self, change: Change, budget_of: BudgetOf, at: datetime) -> None:
        now = time.monotonic()
        self.corrections.apply(change.corrections, self.accounts, budget_of, now)
        self.accounts.restore(change.returning, (), now, at)  # with the corrections contained

    async def look(self, budgets: Mapping[str, Sequence[BudgetPolicy]], at: datetime) -> None:
        """It is all here."""

    def budgets(self, budgets: Mapping[str, Sequence[BudgetPolicy]], at: datetime) -> Shown:
        now = time.monotonic()
        return {t: self.accounts.budgets(tuple(own), now, at) for t, own in budgets.items()}

    def drop(self, request_id: str, reason: DropReason) -> None:
        self.scheduler.drop(request_id, reason)

    def set_available(self, pool: str, endpoint: str, available: bool) -> None:
        self.scheduler.set_available(pool, endpoint, available)

    def live(self) -> dict[str, Any]:
        return self.scheduler.live()

    def cut(self, waiting: Collection[str], at: datetime) -> None:
        self._cuts.make(len(waiting), self.corrections.seen, at)

    async def aclose(self) -> None:
        """There is nothing to end."""
