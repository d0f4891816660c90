"""What one gateway does for all: it ends what dead ones held, and looks at tenants' keys.

1. What a dead gateway held is settled by its estimate, with a record that says so. The ledger keeps
   one record of an id: that one, until the gateway's own end of it comes, from its journal or
   because it was only paused. All of it may be done twice.
2. A reservation of no gateway that lives, or whose end is being done, is nobody's: it is ended as a
   dead gateway's are. That it is so is seen twice, for a gateway that has just come is not known
   yet.
3. Where reservations are missing (a key was deleted, or evicted), all gateways tell of theirs
   again.
4. What was settled by an estimate is settled by its own record once the ledger has that: its
   gateway was killed between writing it and telling the server, and its journal has been
   recovered since.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import UTC, datetime

import msgspec
import structlog

from gateway import metrics
from gateway.state import InThread
from metering.journal import Journal, OpenEntry
from metering.restore import read_ended
from metering.shared.accounts import Look, SharedAccounts
from tenants.core.snapshot import PolicySnapshot

PAUSE_S = 0.003  # for each tenant
OFTEN_S, SELDOM_S = 120.0, 60.0  # after so long an estimate's record is looked for so seldom

log = structlog.get_logger("fairlane.gateway")


class Tending:
    def __init__(self, accounts: SharedAccounts, in_thread: InThread) -> None:
        self._accounts = accounts
        self._in_thread = in_thread
        self.journal: Journal | None = None  # before there are requests
        self._due = 0.0
        self._seldom_due = 0.0
        self._strange: set[tuple[str, str, str]] = set()  # tenant, request and gateway, last time

    async def sweep(self, gone: Sequence[str], snapshot: PolicySnapshot) -> None:
        """
        Raises:
            StateUnavailable
        """
        for replica in gone:
            held = await self._accounts.held_by(replica, sorted(snapshot.tenants))
            for tenant, request_id, entry in held:
                self._end_held(tenant, request_id, entry)
            await self._accounts.ask("leave", replica=replica)
            log.warning("ended what a dead gateway held", replica=replica, requests=len(held))

    async def tend(self, snapshot: PolicySnapshot, known: Sequence[str]) -> None:
        """`known`: the gateways that live, or whose end is being done.

        Raises:
            StateUnavailable
        """
        if time.monotonic() < self._due:
            return
        self._due = time.monotonic() + PAUSE_S * len(snapshot.tenants)
        looks = await self._accounts.look(sorted(snapshot.tenants), known)
        self._end_strange(looks)
        if any(look.lost for look in looks) and await self._accounts.ask("unload"):
            metrics.state_rebuilt.inc()
            log.error("reservations were missing on the server, all gateways tell of theirs again")
        await self._settle_guessed(looks)

    def _end_strange(self, looks: Sequence[Look]) -> None:
        before, self._strange = self._strange, set()
        for look in looks:
            for request_id, gateway, entry in look.strange:
                one = look.tenant, request_id, gateway
                if one in before:
                    self._end_held(look.tenant, request_id, entry)
                    log.warning("ended what a forgotten gateway held", replica=gateway)
                self._strange.add(one)

    def _end_held(self, tenant: str, request_id: str, entry: str | None) -> None:
        """`entry`: the `opened` line of one whose engine was asked."""
        if entry is None:
            self._accounts.end_for_another(tenant, request_id)
            return
        assert self.journal is not None
        record = msgspec.json.decode(entry, type=OpenEntry).abandoned()
        self.journal.ended(record)
        tokens = record.prompt_tokens + record.completion_tokens
        self._accounts.end_for_another(tenant, request_id, tokens, record.cost)

    async def _settle_guessed(self, looks: Sequence[Look]) -> None:
        now = time.monotonic()
        newest = OFTEN_S if now < self._seldom_due else float("inf")
        if newest > OFTEN_S:
            self._seldom_due = now + SELDOM_S
        owners = {id: look.tenant for look in looks for id, age_s in look.guessed if age_s < newest}
        if not owners:
            return
        at = datetime.now(UTC)
        rows = await self._in_thread(lambda: read_ended(list(owners), at))
        for id, row in rows.items():
            tokens = row.prompt_tokens + row.completion_tokens
            self._accounts.known_now(owners[id], id, tokens, row.cost)
        if rows:
            log.warning("settled by their records what dead gateways held", requests=len(rows))
