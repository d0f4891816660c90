"""The scheduler's core: arrivals, endings and policy come in, decisions come out.

It has no clock, no socket and no await; `now` is monotonic seconds and comes as an argument. The
live gateway and the simulator drive this same class. Source: docs/scheduling.md.

1. A request is queued, then running, then gone; each step at most once (request.py).
2. Service is charged at dispatch by the estimate, with what streams past the estimate as it
   streams, and corrected once at the end. Counters, lanes and figures move in
   `_charge` and `_refund`.
3. A tenant runs at most `max_running` requests over all pools. At its limit it is parked, and may
   run again in every pool when one of its requests ends; the pool where it waited longest first.
4. The same calls in the same order give the same decisions.
5. What a new configuration removed takes nothing new and lets what runs end: waiting requests of
   a removed pool, lane or tenant are dropped, running ones are settled as ever.
"""

from __future__ import annotations

from scheduling.core.accounts import Account
from scheduling.core.learning import Held
from scheduling.core.model import (
    Dropped,
    DropReason,
    Grant,
    SchedulerConfig,
    TenantConfig,
    Ticket,
)
from scheduling.core.pool import Decision, Pool
from scheduling.core.request import Request


class Core:
    def __init__(self, config: SchedulerConfig, now: float = 0.0) -> None:
        self.pools: dict[str, Pool] = {}
        self.accounts: dict[str, Account] = {}
        self._requests: dict[str, Request] = {}
        self._changed: dict[Pool, None] = {}  # where a dispatch may have become possible, in order
        self._seq = 0
        self._tick = 0
        self.configure(config, now)

    # --- policy -----------------------------------------------------------------------------

    def configure(self, config: SchedulerConfig, now: float) -> list[Dropped]:
        """Take a new configuration; returns the waiting requests that lost their place."""
        self._config = config
        self._lanes = frozenset(lane.name for lane in config.lanes)
        dropped = [
            Dropped(request.ticket.request_id, reason)
            for request in self._requests.values()
            if request.state == "queued" and (reason := self.refusal(request.ticket)) is not None
        ]
        for drop in dropped:
            self.cancel(drop.request_id)
        self._configure_pools(now)
        for name, account in sorted(self.accounts.items()):
            account.configure(config.tenants.get(name) or TenantConfig())
            self._unpark(account)
        self._changed = dict.fromkeys(self.pools.values())
        return dropped

    def _configure_pools(self, now: float) -> None:
        config = self._config
        for name, wanted in config.pools.items():
            if name not in self.pools:
                self.pools[name] = Pool(wanted, config.lanes, now)
        for name, pool in self.pools.items():
            pool.configure(config.pools.get(name), config.lanes)
        self.pools = {n: p for n, p in self.pools.items() if not p.removed or p.running}

    def refusal(self, ticket: Ticket) -> DropReason | None:
        """Why the policy has no place for this ticket; None when it has one."""
        if ticket.pool not in self._config.pools:
            return "pool_removed"
        if ticket.lane not in self._lanes:
            return "lane_removed"
        if ticket.tenant not in self._config.tenants:
            return "tenant_removed"
        return None

    def set_available(self, pool: str, endpoint: str, available: bool) -> None:
        """Health of an endpoint; draining by policy is the configuration's `available`."""
        found = self.pools.get(pool)
        if found is not None and found.set_healthy(endpoint, available):
            self._changed[found] = None

    def set_capacity(self, pool: str, endpoint: str, max_running: int, max_load: float) -> None:
        """What an endpoint can take, as learnt; the next configuration says it again."""
        found = self.pools.get(pool)
        if found is not None and found.set_capacity(endpoint, max_running, max_load):
            self._changed[found] = None

    def held(self, pool: str, endpoint: str) -> Held | None:
        """What runs on an endpoint, and whether more waits for its pool."""
        found = self.pools.get(pool)
        end = found.endpoints.all.get(endpoint) if found is not None else None
        if found is None or end is None:
            return None
        return Held(end.running, end.load, wanted=found.queued > 0)

    # --- a request's life -------------------------------------------------------------------

    def enqueue(self, ticket: Ticket, now: float) -> Dropped | None:
        """Put a request into its queue; a Dropped when the policy has no place for it.

        Raises:
            ValueError: a request of this id is queued or running.
        """
        if ticket.request_id in self._requests:
            raise ValueError(f"request {ticket.request_id!r} is already here")
        reason = self.refusal(ticket)
        if reason is not None:
            return Dropped(ticket.request_id, reason)
        pool = self.pools[ticket.pool]
        lane = pool.lanes.all[ticket.lane]
        account = self.accounts.get(ticket.tenant)
        if account is None:
            account = Account(ticket.tenant, self._config.tenants[ticket.tenant])
            self.accounts[ticket.tenant] = account
        self._seq += 1
        flow = lane.queue.flow(account, ticket.application)
        request = Request(ticket, self._seq, now, lane, flow)
        self._requests[ticket.request_id] = request
        account.queued += 1
        pool.add(request, self._tick)
        self._changed[pool] = None
        return None

    def cancel(self, request_id: str) -> bool:
        """Take a waiting request out of its queue. False when it does not wait (any more): what
        runs ends by `settle`, with 0 when it never reached an engine."""
        request = self._requests.get(request_id)
        if request is None or not request.goes("cancel"):
            return False
        pool = self._pool_of(request)
        pool.remove(request)
        request.lane.queue.touch(request.flow.share)
        account = request.flow.share.account
        account.queued -= 1
        self._forget(request, account)
        self._changed[pool] = None
        return True

    def dispatch(self, now: float) -> list[Grant]:
        """Everything that can start now, in the order in which it was decided."""
        grants = []
        while self._changed:
            pool = next(iter(self._changed))
            while (decision := pool.decide()) is not None:
                grants.append(self._start(decision, pool))
            pool.meter.advance(now, pool.queued > 0)
            del self._changed[pool]
        return grants

    def charge(self, request_id: str, cost: float) -> None:
        """Service received so far; counts only past what is charged already."""
        request = self._requests.get(request_id)
        if request is not None and request.state == "running" and cost > request.charged:
            self._charge(self._pool_of(request), request, cost - request.charged)

    def settle(self, request_id: str, cost: float) -> bool:
        """A running request is over and took `cost` in all; False when none of this id runs."""
        request = self._requests.get(request_id)
        if request is None or not request.goes("settle"):
            return False
        pool = self._pool_of(request)
        cost = cost if cost > 0 else 0.0  # nor is what is not a number a cost
        if cost > request.charged:
            self._charge(pool, request, cost - request.charged)
        elif cost < request.charged:
            self._refund(pool, request, request.charged - cost)
        pool.meter.served(cost)
        pool.end(request)
        account = request.flow.share.account
        account.running -= 1
        if account.parked:
            self._unpark(account)
            self._changed.pop(pool, None)  # it comes after the pools where the tenant was parked
        self._changed[pool] = None
        self._forget(request, account)
        if pool.removed and not pool.running:
            self.pools.pop(pool.name, None)
        return True

    def retry_elsewhere(self, request_id: str, avoid: str) -> Grant | None:
        """Move a running request to another endpoint that has room, keeping its charge."""
        request = self._requests.get(request_id)
        if request is None or request.state != "running":
            return None
        pool = self._pool_of(request)
        endpoint = pool.endpoints.choose(request.ticket.load, 0, pool.endpoints.all.get(avoid))
        if endpoint is None or endpoint is request.endpoint:
            return None
        pool.vacate(request)
        pool.occupy(request, endpoint)
        self._changed[pool] = None
        return Grant(request_id, endpoint.id)

    # --- reading ----------------------------------------------------------------------------

    @property
    def idle(self) -> bool:
        """Nothing is queued and nothing runs."""
        return not self._requests

    def waiting(self) -> list[Ticket]:
        return [r.ticket for r in self._requests.values() if r.state == "queued"]

    def backlogged(self, pool: str, lane: str) -> bool:
        """Whether a request would find others ahead of it that nothing but the pool holds back:
        those of tenants at their own limit do not count."""
        found = self.pools.get(pool)
        own = found.lanes.all.get(lane) if found is not None else None
        if found is None or own is None or not found.queued:
            return False
        ahead = (other.queue for other in found.lanes.by_rank if other.rank <= own.rank)
        return any(queue.queued and queue.first() is not None for queue in ahead)

    def expected_wait_s(self, pool: str, lane: str) -> float:
        """How long the lane's backlog will take at the pool's measured pace; 0 while the pace is
        unknown, so that nobody is shed on a guess."""
        found = self.pools.get(pool)
        own = found.lanes.all.get(lane) if found is not None else None
        rate = found.meter.units_per_second if found is not None else None
        if found is None or own is None or rate is None:
            return 0.0
        ahead = sum(o.queue.cost for o in found.lanes.by_rank if o.rank <= own.rank)
        by_rank = ahead / rate
        return min(by_rank, own.queue.cost / (own.share * rate)) if own.share else by_rank

    # --- inside -----------------------------------------------------------------------------

    def _pool_of(self, request: Request) -> Pool:
        return self.pools[request.ticket.pool]

    def _start(self, decision: Decision, pool: Pool) -> Grant:
        request = decision.request
        request.goes("dispatch")
        self._tick += 1
        request.dispatched = self._tick
        self._charge(pool, request, request.ticket.cost)
        pool.start(decision)
        account = request.flow.share.account
        account.queued -= 1
        account.running += 1
        return Grant(request.ticket.request_id, decision.endpoint.id)

    def _charge(self, pool: Pool, request: Request, units: float) -> None:
        """`request` takes `units` more service than it is charged."""
        flow = request.flow
        share = flow.share
        account = share.account
        step = units / account.weight
        share.v += step
        share.served += units
        request.share_step += step
        step = units / account.applications.get(flow.name, 1.0)
        flow.v += step
        request.flow_step += step
        request.charged += units
        pool.lanes.charged(request, units)

    def _refund(self, pool: Pool, request: Request, units: float) -> None:
        """`request`, which is over, took `units` less service than it is charged."""
        flow = request.flow
        share = flow.share
        part = units / request.charged
        share.refund(request.share_step * part, request.dispatched)
        share.served -= units
        flow.refund(request.flow_step * part, request.dispatched)
        share.queue.touch(share)
        pool.lanes.refunded(request, units, part)

    def _unpark(self, account: Account) -> None:
        if account.running >= account.limit:
            return
        parked, account.parked = account.parked, ()
        for share in parked:
            pool = self._pool_of(share.next())
            share.queue.unpark(share)
            self._changed[pool] = None

    def _forget(self, request: Request, account: Account) -> None:
        del self._requests[request.ticket.request_id]
        if not account.queued and not account.running:
            del self.accounts[account.name]
