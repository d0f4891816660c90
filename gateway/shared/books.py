"""The shared budgets and the ledger: what an empty server is given, and what keeps both equal.

1. Nothing is in the ledger that was not settled before, so no counter may stay below it. One is
   raised by what it lacked twice in a row: what is on its way to the server comes by itself, and
   so does what is open there and has a record all the same.
2. A correction counts once, by its number, whichever gateway tells the server of it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from uuid import uuid4

import structlog

from gateway.state import Change, InThread
from metering.core.windows import window_at
from metering.corrections import CorrectionFeed
from metering.models import Correction
from metering.restore import (
    LedgerSays,
    Used,
    budgets_by_tenant,
    read_ended,
    read_ledger,
    read_recent,
)
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

    async def note_seen(self, *, anew: bool = False) -> None:
        """What others have told the server of. `anew`: it may have forgotten."""
        told = int(await self._accounts.ask("seen"))
        self._feed.seen = told if anew else max(self._feed.seen, told)

    async def load(self, snapshot: PolicySnapshot) -> None:
        """Onto an empty server; one gateway does. What is there all the same is left alone."""
        at = datetime.now(UTC)
        said = await self.read(snapshot, at)
        recent = await self._in_thread(lambda: read_recent(snapshot, at))
        await self._accounts.floor(_by_tenant(said), said.correction, at, gone=True)
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
        given = _by_tenant(said), said.correction, at
        lacks = await self._accounts.floor(*given, {})
        if not lacks:
            return
        open_in_ledger = await self._open_in_ledger(said, lacks, at)
        self._lacked = {a: lacks[a] - open_in_ledger.get(a, 0.0) for a in lacks}
        most = {a: min(before.get(a, 0.0), units) for a, units in self._lacked.items()}
        if any(units > 0 for units in most.values()):
            await self._accounts.floor(*given, {a: max(0.0, units) for a, units in most.items()})
            log.warning("raised counters to the ledger", accounts=len(most))

    async def _open_in_ledger(
        self, said: LedgerSays, lacks: Mapping[str, float], at: datetime
    ) -> dict[str, float]:
        """By account, what the ledger has of requests that the server takes for open: they are
        counted there when they are settled. Their gateway died, and came back before that was
        noticed."""
        asked = {
            each.policy.account: each for each in said.sustained if each.policy.account in lacks
        }
        ids: list[str] = []
        for tenant in sorted({each.tenant for each in asked.values()}):
            ids += [id for id, _ in await self._accounts.open_of(tenant)]
        rows = await self._in_thread(lambda: read_ended(ids, at)) if ids else {}
        found: defaultdict[str, float] = defaultdict(float)
        for row in rows.values():
            for account in asked.keys() & set(row.accounts):
                policy = asked[account].policy
                assert policy.period is not None
                if row.at in window_at(policy.period, policy.timezone, at):
                    found[account] += row.cost
        return found

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
