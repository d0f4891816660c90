"""The scheduler that several gateways share: `scheduling.seam.Scheduler` over Redis.

1. Redis decides; this class asks, keeps a future for each request that waits, and knows what its
   own requests hold. One writer: everything happens on the event loop's thread.
2. A waiter hears exactly one of: its grant, NotGranted, StateUnavailable, or its own cancellation.
   A grant that nobody can take any more is given back and charges nothing.
3. Grants come with the answer to a call of this replica, or on its channel when another's call
   decided them. Nobody polls.
4. What is read without waiting (`queued`, `backlogged`, `expected_wait_s`, `held`, `live`) is as it
   was a second ago; what decides about admission is a function on the server (`S.queued` … in
   requests.lua).

Leases, fencing and what is asked anew after a lost connection: leases.py.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol
from uuid import uuid4

import msgspec
import structlog
from redis.asyncio import Redis

from scheduling.core.learning import Held
from scheduling.core.model import DropReason, Grant, SchedulerConfig, Ticket
from scheduling.seam import NotGranted
from scheduling.shared.figures import Figures
from scheduling.shared.leases import Leases, Reaped
from scheduling.shared.library import Library
from scheduling.shared.link import Call, Link
from scheduling.shared.wire import Answer, Keys, config_fields, encode, ticket_fields

CHARGE_S = 0.1  # between two batches of progress charges
LEASE_S = 5.0
PATIENCE_S = 1.0

log = structlog.get_logger()


class Waiter(msgspec.Struct, eq=False):
    ticket: Ticket
    future: asyncio.Future[Grant]
    send: Callable[[], None]  # asks for its place (again)


class Running(msgspec.Struct, eq=False):
    ticket: Ticket
    endpoint: str
    charged: float
    born: float = 0.0  # when the pool came to be whose counters have its charge; 0: none has

    def fields(self) -> list[Any]:
        """As `readmit` takes it."""
        return [ticket_fields(self.ticket), self.endpoint, self.charged, self.born]


class Through(Protocol):
    """A function of the gateway's own that does more than `acquire`, in the same round trip. Its
    payload begins as acquire's does (the packed ticket, and whether to wait), its answer with what
    `S.acquire` returns."""

    function: str

    def payload(self) -> list[Any]:
        """What it takes beside the ticket, each time that it is asked."""

    def answered(self, answer: Answer) -> Exception | None:
        """Sees its answer before the grant is given; an error ends the request with it."""


class SharedScheduler:
    """`start` before anything else, `close` at the end. `redis` must not decode responses, nor try
    again by itself (`Retry(NoBackoff(), 0)`): the link does, and knows for how long.

    `name` is this replica's; `ended` is told which requests of dead replicas were ended here, and
    `lost` which of its own had been ended when it came back too late: their reservations were
    settled at what they were charged, they run on. `cleared`: it found keys missing there.
    """

    def __init__(
        self,
        redis: Redis,
        config: SchedulerConfig,
        revision: float = 0,
        *,
        name: str = "",
        library: Library | None = None,
        keys: Keys | None = None,
        lease_s: float = LEASE_S,
        patience_s: float = PATIENCE_S,
        ended: Callable[[list[Reaped]], None] = lambda _: None,
        lost: Callable[[list[str]], None] = lambda _: None,
        cleared: Callable[[], None] = lambda: None,
    ) -> None:
        self.name = f"{name or 'gateway'}-{uuid4().hex[:8]}"
        self.keys = keys or Keys()
        self.library = library or Library()
        self.link = Link(redis, self.library, patience_s)
        self.figures = Figures()
        self.config = config
        self.revision = revision
        self.waiters: dict[str, Waiter] = {}
        self.running: dict[str, Running] = {}
        self.down: set[tuple[str, str]] = set()  # endpoints that this replica found down
        self.leases = Leases(self, redis, lease_s, ended, lost)
        self._waiting: Counter[str] = Counter()  # by tenant
        self.uncharged: dict[str, float] = {}  # progress that was not told yet
        self._cleared = cleared
        self._flush: asyncio.TimerHandle | None = None

    async def start(self) -> None:
        """In touch with Redis and registered in every pool.

        Raises:
            StateUnavailable: not yet. It goes on trying, until `close`.
        """
        self.link.start()
        await self.leases.start()

    async def close(self) -> None:
        """What it holds ends as if its lease had, at once."""
        if self._flush is not None:
            self._flush.cancel()
        await self.leases.close()
        await self.link.close()

    @property
    def reachable(self) -> bool:
        return self.link.down_since is None

    # --- a request's life -------------------------------------------------------------------

    async def acquire(
        self, ticket: Ticket, timeout_s: float, through: Through | None = None
    ) -> Grant:
        waiter = self._enter(ticket, timeout_s > 0, through)
        timer = None
        if timeout_s > 0:
            loop = asyncio.get_running_loop()
            timer = loop.call_later(timeout_s, self.drop, ticket.request_id, "queue_timeout")
        try:
            return await waiter.future
        except asyncio.CancelledError:
            self._abandoned(ticket, waiter)
            raise
        finally:
            if timer is not None:
                timer.cancel()

    def charge(self, request_id: str, cost: float) -> None:
        running = self.running.get(request_id)
        if running is None or cost <= running.charged:
            return
        running.charged = self.uncharged[request_id] = cost
        if self._flush is None:
            self._flush = asyncio.get_running_loop().call_later(CHARGE_S, self._send_charges)

    def settle(self, request_id: str, cost: float) -> None:
        running = self.running.pop(request_id, None)
        self.uncharged.pop(request_id, None)
        if running is not None:
            self.call("settle", running.ticket.pool, request_id, float(cost))

    async def retry_elsewhere(self, request_id: str, avoid: str) -> Grant | None:
        running = self.running.get(request_id)
        if running is None:
            return None
        answer = await self.ask("elsewhere", running.ticket.pool, request_id, avoid)
        if answer[0] != "done":
            return None
        running.endpoint = answer[2]
        return Grant(request_id, running.endpoint)

    def take_over(self, running: Iterable[tuple[Ticket, str, float]]) -> None:
        """What was let in elsewhere while Redis was out of reach: ticket, endpoint, charge. It
        holds its places here from now on, also past an endpoint's limit."""
        by_pool: dict[str, list[Running]] = {}
        for ticket, endpoint, charged in running:
            made = self.running[ticket.request_id] = Running(ticket, endpoint, charged)
            by_pool.setdefault(ticket.pool, []).append(made)
        for pool, taken in by_pool.items():
            self.readmit(pool, taken)

    def readmit(self, pool: str, running: list[Running]) -> None:
        """They take their places again, and are charged where the counters don't have it."""
        fields = [each.fields() for each in running]

        def then(answer: Answer) -> None:
            if answer[0] == "done":
                for each in running:
                    each.born = answer[2]

        self.call("readmit", pool, fields, then=then)

    def drop(self, request_id: str, reason: DropReason) -> bool:
        waiter = self._leave(request_id)
        if waiter is None:
            return False
        self.call("abandon", waiter.ticket.pool, request_id)
        if not waiter.future.done():
            waiter.future.set_exception(NotGranted(reason))
        return True

    def waiting(self) -> list[Ticket]:
        """This replica's, in the order of their arrival here."""
        return [waiter.ticket for waiter in self.waiters.values()]

    # --- policy, health and capacity --------------------------------------------------------

    def configure(self, config: SchedulerConfig, revision: float | None = None) -> None:
        """Replicas see a policy up to a second apart: an older revision than the one in force
        changes nothing. Without a revision it counts as the next one."""
        before = set(self.config.pools)
        self.revision = self.revision + 1 if revision is None else revision
        self.config = config
        self.send_policy(before)
        self.leases.join(set(config.pools) - before)

    def send_policy(self, before: Iterable[str] = ()) -> None:
        """To each realm: all pools together, on a cluster one by one, those that are gone too."""
        pools = sorted({*self.config.pools, *before})
        if not self.keys.cluster:
            self._send_policy(pools[0] if pools else "-", None)
            return
        for pool in pools:
            self._send_policy(pool, {pool})

    def set_available(self, pool: str, endpoint: str, available: bool) -> None:
        """An endpoint is out while more than half of the live replicas find it down."""
        change = self.down.discard if available else self.down.add
        change((pool, endpoint))
        self.call("available", pool, endpoint, available)

    def set_capacity(self, pool: str, endpoint: str, max_running: int, max_load: float) -> None:
        """Counts when this replica is the pool's leader: all of them learn the same from the same
        engine, and one is believed."""
        self.call("capacity", pool, endpoint, max_running, float(max_load))

    # --- figures, a second old --------------------------------------------------------------

    def held(self, pool: str, endpoint: str) -> Held | None:
        """What all replicas together hold there."""
        return self.figures.held(pool, endpoint)

    def queued(self, tenant: str) -> int:
        return max(self.figures.queued(tenant), self._waiting[tenant])

    def backlogged(self, pool: str, lane: str) -> bool:
        return self.figures.backlogged(pool, lane)

    def expected_wait_s(self, pool: str, lane: str) -> float:
        return self.figures.expected_wait_s(pool, lane)

    def live(self) -> dict[str, Any]:
        return self.figures.live()

    # --- calls, also for leases.py ----------------------------------------------------------

    def call(
        self,
        function: str,
        pool: str,
        *given: Any,
        then: Callable[[Answer], None] | None = None,
        failed: Callable[[Exception], None] | None = None,
    ) -> None:
        """`failed` None: it is sent until it arrives."""

        asked_as = ""

        def payload() -> bytes:
            nonlocal asked_as
            asked_as = self.leases.me(pool)
            return encode([False, asked_as, *given])

        def taken(answer: Answer) -> None:
            if answer[0] == "fenced":
                self.leases.fenced(pool, asked_as)
            elif answer[0] == "empty":
                self.leases.state_lost(pool, asked_as)
                self._told_empty(answer[2:])
            if then is not None:
                then(answer)
            self.granted(answer[1])

        self.link.send(Call(function, self.keys.of(pool), payload, taken, failed))

    async def ask(self, function: str, pool: str, *given: Any) -> Answer:
        """Raises: StateUnavailable."""
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()

        def then(found: Answer) -> None:
            if not answer.done():
                answer.set_result(found)

        def failed(error: Exception) -> None:
            if not answer.done():
                answer.set_exception(error)

        self.call(function, pool, *given, then=then, failed=failed)
        return await answer

    def granted(self, grants: Iterable[Sequence[str]]) -> None:
        """Ids and endpoints, of any pool: a tenant's limit is one for all. Who gave up has given
        the place back as well. An old grant is not taken once the lease in its pool may have run
        out: who holds what is asked first."""
        for request_id, endpoint in grants:
            waiter = self.waiters.get(request_id)
            if waiter is None or self.leases.in_doubt(waiter.ticket.pool):
                continue
            self._leave(request_id)
            ticket = waiter.ticket
            if waiter.future.done():  # its task was cancelled, and has not run since
                self.call("abandon", ticket.pool, request_id)
                continue
            born = self.leases.born.get(ticket.pool, 0.0)
            self.running[request_id] = Running(ticket, endpoint, ticket.cost, born)
            waiter.future.set_result(Grant(request_id, endpoint))

    def dropped(self, request_id: str, reason: DropReason) -> None:
        """Nothing is left of it in Redis."""
        self._fail(request_id, NotGranted(reason))

    # --- inside -----------------------------------------------------------------------------

    def _told_empty(self, more: Sequence[Any]) -> None:
        """If it says why, this replica's call found keys missing and cleared the rest away."""
        if more and isinstance(more[0], str):
            self._cleared()
            log.error("keys of the shared scheduler were missing, and it begins anew", why=more[0])

    def _enter(self, ticket: Ticket, waits: bool, through: Through | None) -> Waiter:
        id, pool = ticket.request_id, ticket.pool
        if id in self.waiters or id in self.running:
            raise ValueError(f"request {id!r} is already here")
        function = through.function if through else "acquire"

        def then(answer: Answer) -> None:
            error = through.answered(answer) if through else None
            if error is not None:
                self._fail(id, error)
            elif answer[0] == "dropped":
                self.dropped(id, answer[2])
            elif answer[0] == "running":  # perhaps since a call whose answer was lost
                self.granted([(id, answer[2])])

        def failed(error: Exception) -> None:
            self.call("abandon", pool, id)
            self._fail(id, error)

        def send() -> None:
            more = through.payload() if through else []
            self.call(function, pool, ticket_fields(ticket), waits, *more, then=then, failed=failed)

        waiter = Waiter(ticket, asyncio.get_running_loop().create_future(), send)
        self.waiters[id] = waiter
        self._waiting[ticket.tenant] += 1
        send()
        return waiter

    def _leave(self, request_id: str) -> Waiter | None:
        waiter = self.waiters.pop(request_id, None)
        if waiter is not None:
            self._waiting[waiter.ticket.tenant] -= 1
            if not self._waiting[waiter.ticket.tenant]:
                del self._waiting[waiter.ticket.tenant]
        return waiter

    def _fail(self, request_id: str, error: Exception) -> None:
        waiter = self._leave(request_id)
        if waiter is not None and not waiter.future.done():
            waiter.future.set_exception(error)

    def _abandoned(self, ticket: Ticket, waiter: Waiter) -> None:
        """The waiting task was cancelled: out of the queue, or give back what came meanwhile."""
        if self._leave(ticket.request_id) is not None:
            self.call("abandon", ticket.pool, ticket.request_id)
        elif not waiter.future.cancelled() and waiter.future.exception() is None:
            self.settle(ticket.request_id, 0.0)

    def _send_charges(self) -> None:
        self._flush = None
        charges, self.uncharged = self.uncharged, {}
        by_pool: dict[str, list[tuple[str, float]]] = {}
        for request_id, cost in charges.items():
            by_pool.setdefault(self.running[request_id].ticket.pool, []).append((request_id, cost))
        for pool, costs in by_pool.items():
            self.call("charge", pool, costs)

    def _send_policy(self, pool: str, only: set[str] | None) -> None:
        def then(answer: Answer) -> None:
            if answer[0] == "done":
                for request_id, reason in answer[2]:
                    self.dropped(request_id, reason)

        self.call("configure", pool, self.revision, *config_fields(self.config, only), then=then)
