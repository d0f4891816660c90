"""The state that all gateways share, and what is done while it is out of reach.

1. `shared`: every request is admitted by the server. `lost` (`fail-closed`): none is, who waits is
   told so. `apart` (`fail-open`): this gateway admits on its own, with its part (apart.py).
2. Lost is what did not answer for `PATIENCE_S`. What runs goes on in any case; its end is told to
   the server as soon as that hears again.
3. Back is what answers, has its counters loaded, and knows of all that runs here. Who waited here
   meanwhile asks the server then.
4. Counters that a server has not are loaded from the ledger, by one gateway. One that stays below
   the ledger is raised: nothing is in the ledger that was not settled before.
5. What a dead gateway held is settled by its estimate, with a record that says so, written by the
   first of those that live. The ledger takes one record of an id: that one, or the dead gateway's
   own where its journal comes back first.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Literal
from uuid import uuid4

import msgspec
import structlog
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from gateway.admission import Plan
from gateway.governor import Governor, Place, StateLost
from gateway.shared.apart import Apart, Taken
from gateway.shared.governor import NotLoaded, SharedGovernor
from gateway.shared.library import AccountsLine, whole_library
from gateway.state import Change, InThread, Shown, Step
from metering.core.cut import Cut
from metering.corrections import CorrectionFeed
from metering.journal import Journal, OpenEntry
from metering.restore import LedgerSays, Used, budgets_by_tenant, read_ledger, read_recent
from metering.shared.accounts import SharedAccounts
from metering.store import BudgetOf
from scheduling.core.model import DropReason, Grant, SchedulerConfig
from scheduling.shared.link import StateUnavailable
from scheduling.shared.scheduler import SharedScheduler
from tenants.core.snapshot import BudgetPolicy, PolicySnapshot

Mode = Literal["shared", "lost", "apart"]

SHARED_COUNTERS = "shared"  # what a correction calls them
LEASE_S = 5.0
PATIENCE_S = 1.0
ANSWER_S = 1.0  # for a connection, and for an answer
WATCH_S, BEAT_S, FLOOR_S = 0.1, 1.0, 3.0
TRIES = 8  # of one request, whatever changes under it
LOAD_S = 60  # after that another gateway may load the counters

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
        self.scheduler: SharedScheduler
        self.accounts: SharedAccounts
        self._apart: Apart | None = None
        self._journal: Journal | None = None
        self._live_replicas: list[str] = []
        self._swept: set[str] = set()
        self._loaded = ""  # the name of the counters' latest loading, as last seen
        self._lacked: dict[str, float] = {}
        self._waiting: set[asyncio.Timeout] = set()  # who waits for a place
        self._shown: dict[str, dict[str, Any]] = {}  # budgets by account, as last seen
        self._changing = asyncio.Lock()

    @property
    def name(self) -> str:
        return self.mode

    @property
    def governor(self) -> Governor:
        return self

    # --- coming and going -------------------------------------------------------------------

    async def load(self, snapshot: PolicySnapshot, config: SchedulerConfig, at: datetime) -> None:
        """
        Raises:
            StateUnavailable: the server is out of reach.
        """
        self._snapshot, self._config = snapshot, config
        self.scheduler = SharedScheduler(
            self._redis,
            config,
            snapshot.version,
            name=self._gateway,
            library=whole_library(),
            lease_s=LEASE_S,
            patience_s=PATIENCE_S,
        )
        self.accounts = SharedAccounts(AccountsLine(self.scheduler.link), self._new_name())
        self._feed = CorrectionFeed(SHARED_COUNTERS, 0)
        self._shared = SharedGovernor(self.accounts, self.scheduler)
        try:
            await self.scheduler.start()
            await self._join()
        except StateUnavailable as error:
            raise StateUnavailable(f"REDIS_URL: its server is out of reach ({error})") from None
        self.mode = "shared"

    def _new_name(self) -> str:
        return f"{self._gateway}-{uuid4().hex[:8]}"

    def open(self, journal: Journal) -> list[Step]:
        self._journal = journal
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
            way = self._apart.admit if self._apart is not None else self._shared.admit
            try:
                return await self._wait(way, plan)
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

    async def _wait(self, way: Callable[[Plan], Awaitable[Place]], plan: Plan) -> Place:
        """
        Raises:
            StateUnavailable: also where the mode has changed meanwhile.
        """
        moved = asyncio.timeout(None)
        try:
            async with moved:
                self._waiting.add(moved)
                return await way(plan)
        except TimeoutError:
            if moved.expired():
                raise StateUnavailable("moved") from None
            raise
        finally:
            self._waiting.discard(moved)

    def _move_waiting(self) -> None:
        now = asyncio.get_running_loop().time()
        for each in self._waiting:
            each.reschedule(now)
        self._waiting.clear()

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
        since = self.scheduler.link.down_since
        if since is None:
            if self.mode != "shared":
                await self._come_back()
        elif time.monotonic() - since >= PATIENCE_S and self.mode == "shared":
            self._lose()
        if self._apart is not None:
            self._apart.configure(self._config, self._taken())

    def _lose(self) -> None:
        """In one step: whoever waits asks again, and finds the new mode."""
        log.error("the shared state is out of reach", then="apart" if self._opens else "lost")
        if self._opens:
            self._go_apart()
        else:
            self.mode = "lost"
        self._move_waiting()

    def _go_apart(self) -> None:
        parts = max(1, len(self._live_replicas))
        self._apart = Apart(self._config, parts, self._taken())
        for pool, endpoint in self.scheduler.down:
            self._apart.scheduler.set_available(pool, endpoint, False)
        known = budgets_by_tenant(self._snapshot)
        last = [
            Used(tenant, policy, self._shown[account]["used"])
            for tenant, budgets in known.items()
            for account, policy in budgets.items()
            if policy.period is not None and account in self._shown
        ]
        self._apart.raise_to(last, datetime.now(UTC))
        self.mode = "apart"

    def _taken(self) -> Taken:
        """What runs here that the server let in, by endpoint."""
        requests: Counter[tuple[str, str]] = Counter()
        load: Counter[tuple[str, str]] = Counter()
        for running in self.scheduler.running.values():
            place = running.ticket.pool, running.endpoint
            requests[place] += 1
            load[place] += running.ticket.load  # type: ignore[assignment]
        return {place: (count, float(load[place])) for place, count in requests.items()}

    async def _come_back(self) -> None:
        """
        Raises:
            StateUnavailable: not yet.
        """
        async with self._changing:
            await self._join()
            if self.mode == "shared":
                return
            apart, self._apart, self.mode = self._apart, None, "shared"
            if apart is not None:
                self._hand_over(apart)
            self._move_waiting()
            log.warning("the shared state is in reach again")
            await self.accounts.adopt()

    def _hand_over(self, apart: Apart) -> None:
        """What was let in here and runs is the server's from now on."""
        running = list(apart.running.values())
        for plan, _ in running:
            self.accounts.take_over(plan.hold, plan.at)
        self.scheduler.take_over(
            [
                (_ticket(plan, place), place.grant.endpoint, plan.ticket.cost)
                for plan, place in running
            ]
        )
        apart.running.clear()

    async def _join(self) -> None:
        """On the list of those that live, with counters there and corrections in them."""
        known, *more = await self.accounts.ask("beat", lease_s=LEASE_S, joins=False)
        if not known and more[0] and more[0] == self._loaded:  # it was taken for dead
            self.accounts.renamed(self._new_name(), self.scheduler.waiters.keys())
        while True:
            _, _, loaded, live = await self.accounts.ask("beat", lease_s=LEASE_S, joins=True)
            self._live_replicas = sorted(live)
            if loaded:
                break
            if await self.accounts.ask("begin_load", seconds=LOAD_S):
                await self._load_counters()
            else:
                await asyncio.sleep(WATCH_S)
        self._loaded = loaded
        await self.accounts.adopt()
        self._feed.seen = max(self._feed.seen, int(await self.accounts.ask("seen")))

    async def _load_counters(self) -> None:
        at, snapshot = datetime.now(UTC), self._snapshot
        said = await self._in_thread(lambda: read_ledger(snapshot, at))
        recent = await self._in_thread(lambda: read_recent(snapshot, at))
        await self.accounts.floor(_by_tenant(said), said.correction, at)
        await self.accounts.past(recent)
        await self.accounts.ask("loaded", id=uuid4().hex, newest=said.correction)
        self._feed.seen = max(self._feed.seen, said.correction)
        log.warning("shared counters loaded from the ledger", budgets=len(said.sustained))

    # --- again and again --------------------------------------------------------------------

    @property
    def leads(self) -> bool:
        """Of those that live one tells what is shared, and does what needs doing once."""
        return bool(self._live_replicas) and self._live_replicas[0] == self.accounts.replica

    async def _beat(self) -> None:
        if self.mode != "shared":
            return
        known, *more = await self.accounts.ask("beat", lease_s=LEASE_S, joins=False)
        if not known:
            await self._come_back()
            return
        gone, loaded, live = more
        self._live_replicas = sorted(live)
        if not loaded:
            await self._come_back()
        if self.leads:
            for replica in gone:
                await self._sweep(replica)

    async def _sweep(self, replica: str) -> None:
        """Everything may be done twice: settling by its id, and the record too."""
        assert self._journal is not None
        held = await self.accounts.held_by(replica, sorted(self._snapshot.tenants))
        for tenant, request_id, entry in held:
            if entry is None:
                self.accounts.end_for_another(tenant, request_id)
                continue
            record = msgspec.json.decode(entry, type=OpenEntry).abandoned()
            self._journal.ended(record)
            tokens = record.prompt_tokens + record.completion_tokens
            self.accounts.end_for_another(tenant, request_id, tokens, record.cost)
        await self.accounts.ask("leave", replica=replica)
        log.warning("ended what a dead gateway held", replica=replica, requests=len(held))

    async def _keep_up(self) -> None:
        if self.mode == "apart" and self._apart is not None:
            at, snapshot = datetime.now(UTC), self._snapshot
            said = await self._in_thread(lambda: read_ledger(snapshot, at))
            if self._apart is not None:
                self._apart.raise_to(said.sustained, at)
        elif self.mode == "shared" and self.leads:
            await self._correct(await self._in_thread(self._feed.read))
            await self._raise_to_ledger()

    async def _raise_to_ledger(self) -> None:
        """By what a counter has lacked twice in a row: what is on its way here comes by itself."""
        at, snapshot = datetime.now(UTC), self._snapshot
        said = await self._in_thread(lambda: read_ledger(snapshot, at))
        if said.correction > self._feed.seen:
            return
        before, self._lacked = self._lacked, {}
        self._lacked = await self.accounts.floor(_by_tenant(said), said.correction, at, before)
        raised = {a: min(before[a], units) for a, units in self._lacked.items() if a in before}
        if raised:
            log.warning("raised counters to the ledger", accounts=len(raised))

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
            self._apart.configure(config, self._taken())

    async def read_change(self, old: PolicySnapshot, new: PolicySnapshot, at: datetime) -> Change:
        found = await self._in_thread(lambda: self._feed.read_change((), old, new, at))
        return Change(*found)

    async def take_up(self, change: Change, budget_of: BudgetOf, at: datetime) -> None:
        """What does not arrive now is read again (`_keep_up`)."""
        if self.mode != "shared":
            return
        await self._correct(change.corrections, budget_of)
        owned = budgets_by_tenant(self._snapshot)
        owners = {account: tenant for tenant, budgets in owned.items() for account in budgets}
        used = [Used(owners[p.account], p, u) for p, u in change.returning if p.account in owners]
        await self.accounts.floor(_by_tenant(LedgerSays(used, 0)), self._feed.seen, at)

    async def _correct(self, found: Sequence[Any], budget_of: BudgetOf | None = None) -> None:
        """Each counts once, whichever gateway tells the server of it, and however often."""
        if not found:
            return
        owned = budgets_by_tenant(self._snapshot)
        for correction in found:
            for tenant, budgets in owned.items():
                policy = budgets.get(correction.account)
                if policy and policy.period and correction.counter in ("", SHARED_COUNTERS):
                    await self.accounts.correct(
                        tenant, policy, correction.units, correction.id, correction.at
                    )
            self._feed.seen = max(self._feed.seen, correction.id)
        await self.accounts.ask("seen", newest=self._feed.seen)

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
        return self._apart is not None or self.leads

    def live(self) -> dict[str, Any]:
        if self._apart is not None:
            return self._apart.scheduler.live()
        if self.mode == "shared" and self.tells:
            return self.scheduler.live()
        return {"pools": {}, "tenants": {}}

    def cut(self, waiting: Collection[str], at: datetime) -> None:
        """The counters are nobody's own: the ledger is compared with them all the time
        (`_raise_to_ledger`), and here only what is open."""
        assert self._journal is not None
        apart = self._apart.running if self._apart is not None else {}
        asked = len([i for i in (*self.accounts.open_ids, *apart) if i not in waiting])
        self._journal.cut(
            Cut(
                gateway=self._gateway,
                at=at,
                since=at,
                last=True,
                correction=self._feed.seen,
                asked=asked,
                counters=(),
            )
        )


def _ticket(plan: Plan, place: Place) -> Any:
    return msgspec.structs.replace(plan.ticket, lane=place.lane.name)


def _by_tenant(said: LedgerSays) -> dict[str, dict[BudgetPolicy, float]]:
    found: dict[str, dict[BudgetPolicy, float]] = {}
    for each in said.sustained:
        found.setdefault(each.tenant, {})[each.policy] = each.used
    return found
