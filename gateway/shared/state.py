"""The state that all gateways share, and what is done while it is out of reach.

1. `shared`: every request is admitted by the server. `lost` (`fail-closed`): none is, who waits is
   told so. `apart` (`fail-open`): this gateway admits on its own, with its part (apart.py).
2. Lost is what did not answer for `PATIENCE_S`, at the start too. What runs goes on in any case;
   its end is told to the server as soon as that hears again.
3. Back is what answers, has its budgets loaded (books.py) and its virtual counters (counters.py),
   and knows of all that runs here. Who waited here meanwhile asks the server then.
4. Where gateways of another release work there with records of another layout, this one is `lost`
   whatever the setting: apart it would hand out places that are theirs. It joins once they left.
5. What is done for all is done by the first gateway of those that live (tending.py).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Literal

import structlog
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from gateway import metrics
from gateway.admission import Plan
from gateway.governor import Governor, Place, StateLost
from gateway.shared import membership
from gateway.shared.apart import Apart, last_seen, taken_by
from gateway.shared.books import Books
from gateway.shared.counters import VirtualCounters
from gateway.shared.governor import NotLoaded, SharedGovernor
from gateway.shared.library import AccountsLine, whole_library
from gateway.shared.membership import Membership, heard_of, new_name
from gateway.shared.moving import Moving
from gateway.shared.returning import Returning
from gateway.shared.tending import Tending
from gateway.state import Change, InThread, Shown, Step
from metering.core.cut import Cut
from metering.journal import Journal, OpenEntry
from metering.shared.accounts import SharedAccounts
from metering.store import BudgetOf
from scheduling.core.model import DropReason, Grant, SchedulerConfig
from scheduling.shared import keeping
from scheduling.shared.link import StateUnavailable
from scheduling.shared.scheduler import SharedScheduler
from tenants.core.snapshot import BudgetPolicy, PolicySnapshot

Mode = Literal["shared", "lost", "apart"]

PATIENCE_S = 1.0
ANSWER_S = 1.0  # for a connection, and for an answer
WATCH_S, BEAT_S, FLOOR_S = 0.1, 1.0, 3.0
HOLD_S = 2.0  # nobody is let in for so long at most while it comes back
TRIES = 8  # of one request, whatever changes under it

log = structlog.get_logger("fairlane.gateway")


class SharedState:
    """`gateway.state.State`, and `gateway.governor.Governor` in whatever mode there is."""

    def __init__(self, gateway: str, in_thread: InThread, redis_url: str, *, opens: bool) -> None:
        self._gateway = gateway
        self._in_thread = in_thread
        self._opens = opens
        self._redis = Redis.from_url(
            redis_url,
            socket_timeout=ANSWER_S,
            socket_connect_timeout=ANSWER_S,
            socket_keepalive=True,
            retry=Retry(NoBackoff(), 0),
        )
        self.mode: Mode = "lost"
        self.since = datetime.now(UTC)  # when it came to be so
        self._fault = "is not joined yet"  # why not, until it is once
        self.scheduler: SharedScheduler
        self.accounts: SharedAccounts
        self._apart: Apart | None = None
        self.trouble = ""
        self._heard = 1  # gateways that told the database of themselves, with this one
        self._moving = Moving()
        self._shown: dict[str, dict[str, Any]] = {}  # budgets by account, as last seen
        self._changing = asyncio.Lock()
        self._joined = 0  # how often

    @property
    def name(self) -> str:
        return self.mode

    @property
    def fault(self) -> str:
        """A gateway that lost the state while it ran stays ready, and answers that it did: callers
        learn more from that than from a proxy with nobody behind it."""
        found = self.scheduler.link.refused or (self.mode != "apart" and self._fault)
        return f"the state shared by gateways {found}" if found else ""

    @property
    def governor(self) -> Governor:
        return self

    # --- coming and going -------------------------------------------------------------------

    async def load(self, snapshot: PolicySnapshot, config: SchedulerConfig, at: datetime) -> None:
        self._snapshot, self._config = snapshot, config
        self.scheduler = SharedScheduler(
            self._redis,
            config,
            snapshot.version,
            name=self._gateway,
            library=whole_library(),
            lease_s=membership.LEASE_S,
            patience_s=PATIENCE_S,
            cleared=metrics.state_rebuilt.inc,
        )
        self.accounts = SharedAccounts(AccountsLine(self.scheduler.link), new_name(self._gateway))
        self._members = Membership(self._gateway, self.accounts, self.scheduler.leases.rejoin)
        self._returning = Returning(self._gateway, self.scheduler, self._members, self._in_thread)
        self._books = Books(self.accounts, self._in_thread)
        self._counters = VirtualCounters(self.scheduler, self._in_thread)
        self._tending = Tending(self.accounts, self._in_thread)
        self._shared = SharedGovernor(self.accounts, self.scheduler)
        try:
            await self.scheduler.start()
            await self._join()
        except StateUnavailable as error:
            self._fault = f"(REDIS_URL) is out of reach: {error}"
            self._heard = 1 + await self._in_thread(heard_of)
            self._lose()
            if self._apart is not None:
                await self._follow_ledger(self._apart)
        else:
            self._turn("shared")

    def _turn(self, mode: Mode) -> None:
        self.mode, self.since = mode, datetime.now(UTC)
        if mode == "shared":
            self._fault = self.trouble = ""

    def open(self, journal: Journal) -> list[Step]:
        self._tending.journal = journal
        return [
            (self._watch, WATCH_S, "shared state"),
            (self._beat, BEAT_S, "lease on shared counters"),
            (self._keep_up, FLOOR_S, "shared counters and ledger"),
        ]

    async def aclose(self) -> None:
        if self.mode == "shared" and not self.accounts.open_ids:  # else another ends what is open
            with suppress(StateUnavailable):
                await self.accounts.ask("leave")
        await self.scheduler.close()
        await self._redis.aclose()

    # --- requests (gateway.governor.Governor) -----------------------------------------------

    async def admit(self, plan: Plan) -> Place:
        for left in reversed(range(TRIES)):
            if self.mode == "lost":
                break
            await self._moving.passed()
            way = self._apart.admit if self._apart is not None else self._shared.admit
            try:
                return await self._moving.wait(way, plan)
            except StateUnavailable as error:
                if not left:
                    log.error("the shared state admits nobody", error=str(error))
                await self._look_again(error)
        raise StateLost

    async def _look_again(self, error: StateUnavailable) -> None:
        """What is in the way of a request is tried at once; what stays in it is logged by the step
        that tries again and again."""
        with suppress(Exception):
            await (self._come_back() if isinstance(error, NotLoaded) else self._watch())

    async def elsewhere(self, request_id: str, avoid: str) -> Grant | None:
        if self._is_apart(request_id):
            assert self._apart is not None
            return await self._apart.governor.elsewhere(request_id, avoid)
        return await self._shared.elsewhere(request_id, avoid) if self.mode == "shared" else None

    def asked(self, entry: OpenEntry) -> None:
        if not self._is_apart(entry.request_id):
            self._shared.asked(entry)

    def charge(self, request_id: str, tokens: int, cost: float) -> None:
        if self._is_apart(request_id):
            assert self._apart is not None
            self._apart.governor.charge(request_id, tokens, cost)
        else:
            self._shared.charge(request_id, tokens, cost)

    def settle(self, request_id: str, tokens: int, cost: float) -> None:
        if self._is_apart(request_id):
            assert self._apart is not None
            self._apart.settle(request_id, tokens, cost)
        else:
            self._shared.settle(request_id, tokens, cost)

    def _is_apart(self, request_id: str) -> bool:
        return self._apart is not None and request_id in self._apart.running

    # --- out of reach, and back -------------------------------------------------------------

    async def _watch(self) -> None:
        since, refused = self.scheduler.link.down_since, self.scheduler.link.refused
        if refused:
            if self.mode != "lost":
                self._lose()
            await self._supersede()
        elif since is None:
            if self.mode != "shared":
                await self._come_back()
        elif time.monotonic() - since >= PATIENCE_S and self.mode == "shared":
            self._lose()
        if self._apart is not None:
            self._apart.configure(self._config, taken_by(self.scheduler))

    def _lose(self) -> None:
        """In one step: whoever waits asks again, and finds the new mode."""
        then = "apart" if self._opens and not self.scheduler.link.refused else "lost"
        self.trouble = self.fault or f"the state shared by gateways {self.scheduler.link.trouble}"
        log.error("the shared state is out of reach", then=then, why=self.trouble)
        if then == "apart":
            self._go_apart()
        else:
            self._turn("lost")
        self._moving.move()

    async def _supersede(self) -> None:
        """Records of another layout are cleared away once nobody works on them."""
        alive = await keeping.supersede(self.scheduler)
        if alive:
            self.scheduler.link.refused = (
                "is kept by gateways of another release with other records: "
                f"{', '.join(alive)}; this one joins when they have stopped"
            )
            await asyncio.sleep(BEAT_S)
        else:
            self.scheduler.link.refused = ""

    def _go_apart(self) -> None:
        self._apart = Apart(self._config, self._parts, taken_by(self.scheduler))
        for pool, endpoint in self.scheduler.down:
            self._apart.scheduler.set_available(pool, endpoint, False)
        self._apart.raise_to(last_seen(self._snapshot, self._shown), datetime.now(UTC))
        self._turn("apart")

    @property
    def _parts(self) -> int:
        """Of those last seen there; at a start, those that tell the database of themselves."""
        return max(self._heard, len(self._members.live))

    async def _come_back(self) -> None:
        """
        Raises:
            StateUnavailable: not yet.
        """
        joined = self._joined
        async with self._changing:
            if self.mode == "shared":
                if joined == self._joined:  # nobody else has, meanwhile
                    await self._join()
                return
            expected = self._parts
            await self._returning.wait()
            with self._moving.held(HOLD_S):
                self._hand_over()
                await self._join()
                await self._members.gathered(expected)
                self._hand_over()  # what was let in since: it may have taken longer
                self._apart = None
                self._turn("shared")
            self._moving.move()
            log.warning("the shared state is in reach again")
            await self.accounts.adopt()

    def _hand_over(self) -> None:
        """What was let in apart is the server's from now on."""
        if self._apart is not None:
            for plan, _ in self._apart.running.values():
                self.accounts.take_over(plan.hold, plan.at)
            self.scheduler.take_over(self._apart.hand_over())

    async def _join(self) -> None:
        """On the list of those that live, with counters there and corrections in them.

        Raises:
            StateUnavailable
        """
        await self._returning.wait()
        await self._members.join(lambda: self._books.load(self._snapshot))
        await self._counters.restore()
        await self.accounts.adopt()
        await self._books.note_seen(anew=await self._members.retire())
        self._joined += 1

    # --- again and again --------------------------------------------------------------------

    async def _beat(self) -> None:
        if self.mode != "shared":
            return
        heard = await self._members.beat()
        if heard.whole:
            self._returning.all_here()
        else:
            await self._come_back()
        if self._members.leads:
            await self._tending.sweep(heard.gone, self._snapshot)

    async def _keep_up(self) -> None:
        if self.mode == "apart" and self._apart is not None:
            self._heard = max(1, await self._in_thread(heard_of))
            self._apart.parts = self._parts
            await self._follow_ledger(self._apart)
        elif self.mode == "shared" and self._members.leads:
            await self._books.follow(self._snapshot)
            await self._counters.keep()
            await self._tending.tend(self._snapshot, self._members.known)

    async def _follow_ledger(self, apart: Apart) -> None:
        at = datetime.now(UTC)
        said = await self._books.read(self._snapshot, at)
        apart.raise_to(said.sustained, at)

    # --- what comes from the gateway's other parts ------------------------------------------

    def drop(self, request_id: str, reason: DropReason) -> None:
        self.scheduler.drop(request_id, reason)
        if self._apart is not None:
            self._apart.scheduler.drop(request_id, reason)

    def set_available(self, pool: str, endpoint: str, available: bool) -> None:
        self.scheduler.set_available(pool, endpoint, available)
        if self._apart is not None:
            self._apart.scheduler.set_available(pool, endpoint, available)

    # --- policy and ledger ------------------------------------------------------------------

    def configure(self, config: SchedulerConfig, snapshot: PolicySnapshot) -> None:
        self._config, self._snapshot = config, snapshot
        self.scheduler.configure(config, snapshot.version)
        if self._apart is not None:
            self._apart.configure(config, taken_by(self.scheduler))

    async def read_change(self, old: PolicySnapshot, new: PolicySnapshot, at: datetime) -> Change:
        return await self._books.read_change(old, new, at)

    async def take_up(self, change: Change, budget_of: BudgetOf, at: datetime) -> None:
        if self.mode == "shared":
            await self._books.take_up(change, self._snapshot, at)

    # --- what is told of it -----------------------------------------------------------------

    async def look(self, budgets: Mapping[str, Sequence[BudgetPolicy]], at: datetime) -> None:
        if self.mode == "shared":
            found = await self.accounts.budgets(budgets, at)
            self._shown |= {one["account"]: one for own in found.values() for one in own}

    def budgets(self, budgets: Mapping[str, Sequence[BudgetPolicy]], at: datetime) -> Shown:
        if self._apart is not None:
            return self._apart.budgets(budgets, at)
        return {
            tenant: [self._shown[b.account] for b in own if b.account in self._shown]
            for tenant, own in budgets.items()
        }

    @property
    def tells(self) -> bool:
        """What is shared is told by one gateway: those who read add up what each tells."""
        return self._apart is not None or self._members.leads

    def live(self) -> dict[str, Any]:
        if self._apart is not None:
            return self._apart.scheduler.live()
        if self.mode == "shared" and self.tells:
            return self.scheduler.live()
        return {"pools": {}, "tenants": {}}

    def cut(self, waiting: Collection[str], at: datetime) -> None:
        """The counters are nobody's own: the ledger is compared with them all the time
        (`Books.follow`), and here only what is open."""
        assert self._tending.journal is not None
        apart = self._apart.running if self._apart is not None else {}
        asked = len([i for i in (*self.accounts.open_ids, *apart) if i not in waiting])
        self._tending.journal.cut(
            Cut(
                gateway=self._gateway,
                at=at,
                since=at,
                last=True,
                correction=self._books.newest,
                asked=asked,
                counters=(),
            )
        )
