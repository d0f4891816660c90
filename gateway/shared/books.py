"""The shared budgets and the ledger: what an empty server is given, and what keeps both equal.

1. Nothing is in the ledger that was not settled before, so no counter may stay below it. One is
   raised by what it lacked twice in a row: what is on its way to the server comes by itself.
2. A correction counts once, by its number, whichever gateway tells the server of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from uuid import uuid4

import structlog

from gateway.state import Change, InThread
from metering.corrections import CorrectionFeed
from metering.models import Correction
from metering.restore import LedgerSays, Used, budgets_by_tenant, read_ledger, read_recent
from metering.shared.accounts import SharedAccounts
from tenants.core.snapshot import BudgetPolicy, PolicySnapshot

SHARED_COUNTERS = "shared"  # what a correction calls them

log = structlog.get_logger("fairlane.gateway")


class Books:
    def __init__(self, accounts: SharedAccounts, in_thread: InThread) -> None:
        self._accounts = accounts
        self._in_thread = in_thread
        self._feed = CorrectionFeed(SHARED_COUNTERS, 0)
        self._lacked: dict[str, float] = {}

    @property
    def newest(self) -> int:
        """The newest correction that the counters have."""
        return self._feed.seen

    async def note_seen(self) -> None:
        """What others have told the server of."""
        self._feed.seen = max(self._feed.seen, int(await self._accounts.ask("seen")))

    async def load(self, snapshot: PolicySnapshot) -> None:
        """Onto an empty server; one gateway does."""
        at = datetime.now(UTC)
        said = await self.read(snapshot, at)
        recent = await self._in_thread(lambda: read_recent(snapshot, at))
        await self._accounts.floor(_by_tenant(said), said.correction, at)
        await self._accounts.past(recent)
        await self._accounts.ask("loaded", id=uuid4().hex, newest=said.correction)
        self._feed.seen = max(self._feed.seen, said.correction)
        log.warning("shared counters loaded from the ledger", budgets=len(said.sustained))

    async def read(self, snapshot: PolicySnapshot, at: datetime) -> LedgerSays:
        return await self._in_thread(lambda: read_ledger(snapshot, at))

    async def follow(self, snapshot: PolicySnapshot) -> None:
        """Again and again, one gateway: corrections, and what the counters lack."""
        await self.correct(await self._in_thread(self._feed.read), snapshot)
        at = datetime.now(UTC)
        said = await self.read(snapshot, at)
        if said.correction > self._feed.seen:
            return
        before, self._lacked = self._lacked, {}
        self._lacked = await self._accounts.floor(_by_tenant(said), said.correction, at, before)
        raised = {a: min(before[a], units) for a, units in self._lacked.items() if a in before}
        if raised:
            log.warning("raised counters to the ledger", accounts=len(raised))

    async def read_change(self, old: PolicySnapshot, new: PolicySnapshot, at: datetime) -> Change:
        found = await self._in_thread(lambda: self._feed.read_change((), old, new, at))
        return Change(*found)

    async def take_up(self, change: Change, snapshot: PolicySnapshot, at: datetime) -> None:
        """What does not arrive now is read again (`follow`)."""
        await self.correct(change.corrections, snapshot)
        owned = budgets_by_tenant(snapshot)
        owners = {account: tenant for tenant, budgets in owned.items() for account in budgets}
        used = [Used(owners[p.account], p, u) for p, u in change.returning if p.account in owners]
        await self._accounts.floor(_by_tenant(LedgerSays(used, 0)), self._feed.seen, at)

    async def correct(self, found: Sequence[Correction], snapshot: PolicySnapshot) -> None:
        if not found:
            return
        owned = budgets_by_tenant(snapshot)
        for correction in found:
            for tenant, budgets in owned.items():
                policy = budgets.get(correction.account)
                if policy and policy.period and correction.counter in ("", SHARED_COUNTERS):
                    await self._accounts.correct(
                        tenant, policy, correction.units, correction.id, correction.at
                    )
            self._feed.seen = max(self._feed.seen, correction.id)
        await self._accounts.ask("seen", newest=self._feed.seen)


def _by_tenant(said: LedgerSays) -> dict[str, dict[BudgetPolicy, float]]:
    found: dict[str, dict[BudgetPolicy, float]] = {}
    for each in said.sustained:
        found.setdefault(each.tenant, {})[each.policy] = each.used
    return found
