"""Which gateways live, as the shared budgets have it. The first of them does what is done once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import NamedTuple
from uuid import uuid4

import structlog

from metering.selectors import latest_samples
from metering.shared.accounts import SharedAccounts

LEASE_S = 5.0
PAUSE_S = 0.1
GATHER_S = 1.0  # a gateway that does not come back meanwhile is not waited for
LOAD_S = 60  # after that another gateway may load the budgets
HEARD = timedelta(seconds=10)  # a gateway tells the database of itself once a second

log = structlog.get_logger("fairlane.gateway")


class Heard(NamedTuple):
    whole: bool  # it was on the list, and the budgets are loaded
    gone: list[str]  # who is to be ended


class Membership:
    def __init__(self, gateway: str, accounts: SharedAccounts, rejoin: Callable[[], None]) -> None:
        """`rejoin` does in the scheduler what `retire` does in the accounts."""
        self._gateway = gateway
        self._accounts = accounts
        self._rejoin = rejoin
        self._server = ""  # the process that answered last
        self._may_be_older = False  # another one answers
        self._former = ""
        self.live: list[str] = []
        self.known: list[str] = []  # and those whose end is being done

    @property
    def leads(self) -> bool:
        return bool(self.live) and self.live[0] == self._accounts.replica

    async def join(self, load: Callable[[], Awaitable[None]]) -> None:
        """On the list of those that live, with budgets there: where there are none, one gateway
        loads them and the others wait for it. One that was taken for dead, or forgotten, comes
        under a new name: whatever it still says under the old one takes nothing. So does one whose
        server may be an older copy of what it was (`retire`).

        Raises:
            StateUnavailable
        """
        accounts, loaded, joins = self._accounts, "", False
        while not loaded:
            known, *told = await accounts.ask("beat", lease_s=LEASE_S, joins=joins)
            if known:
                self._note(told[3])
            if known and self._may_be_older:
                log.warning("another server has the shared state, joining anew")
                known, self._former = False, accounts.replica
            joins = not known
            if not known:
                self._server, self._may_be_older = "", False
                accounts.renamed(new_name(self._gateway))
                continue
            gone, loaded, live, _ = told
            self.live, self.known = sorted(live), [*live, *gone]
            if not loaded and await accounts.ask("begin_load", seconds=LOAD_S):
                await load()
            elif not loaded:
                await asyncio.sleep(PAUSE_S)

    async def gathered(self, number: int) -> None:
        """Wait a moment for so many to be there: what they run takes its places first.

        Raises:
            StateUnavailable
        """
        deadline = time.monotonic() + GATHER_S
        while len(self.live) < number and time.monotonic() < deadline:
            await asyncio.sleep(PAUSE_S)
            await self.beat()

    async def beat(self) -> Heard:
        """
        Raises:
            StateUnavailable
        """
        known, *more = await self._accounts.ask("beat", lease_s=LEASE_S, joins=False)
        if not known:
            return Heard(False, [])
        gone, loaded, live, server = more
        self._note(server)
        self.live, self.known = sorted(live), [*live, *gone]
        return Heard(bool(loaded) and not self._may_be_older, gone)

    def _note(self, server: str | None) -> None:
        """It was restarted, or a replica took over: the last moments may be missing there, and what
        has ended in them is open again. Redis gives each process an id."""
        before, self._server = self._server, server or ""
        self._may_be_older |= before not in ("", self._server)

    async def retire(self) -> bool:
        """Call it when all that is open is told under the new name. What is left under the one
        before has ended, and is settled as a dead gateway's is. False: there is none.

        Raises:
            StateUnavailable
        """
        if not self._former:
            return False
        await self._accounts.ask("retire", former=self._former)
        self._rejoin()
        self._former = ""
        return True


def new_name(gateway: str) -> str:
    return f"{gateway}-{uuid4().hex[:8]}"


def heard_of() -> int:
    """Gateways that told the database of themselves a moment ago."""
    return len(latest_samples(max_age_s=HEARD.total_seconds()))
