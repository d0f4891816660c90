"""All rates, depths and budgets of one process: taken whole by `reserve`, made true by `settle`.

1. All or nothing: a refusal changes no rate, no budget and no depth (scheduling.md, Order 2–3).
2. `used` of everything = what was settled; held = the open reservations; both at any moment, and in
   whatever order requests end.
3. A request counts where it was taken: the second it came in, the budget window it arrived in.
   Settling later moves those, and nothing else; only the first settlement of an id counts.
4. Checks go cheapest first: requests a minute, tokens a minute, burst, sustained, depth. The answer
   describes the one that decided; of several budgets that refuse, the one that refuses longest.
5. Budgets that only demote or alert never refuse, and still count.
6. A later call of an interaction is charged like any other and refused by no rate and no burst
   budget; depth and sustained budgets hold for it.
7. Memory is bounded by what is in use: idle accounts are forgotten, one of a kind a request.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import msgspec

from metering.core import refusals
from metering.core.budgets import BurstBucket, Counter, SustainedAccount
from metering.core.hold import Admitted, Hold, RateState, Refused
from metering.core.tenant_use import TenantUse, rate_refusal, rate_state, tokens_to_hold
from metering.core.windows import Window
from tenants.core.snapshot import BudgetPolicy, Limits


class Reservation(msgspec.Struct):
    """Where one open request was taken, by reference: settling needs no look-up. `tokens`, `cost`
    and amounts rise where it turns out larger than was held."""

    use: TenantUse
    slot: int
    tokens: int
    cost: float
    bursts: list[tuple[BurstBucket, int]]
    sustained: list[tuple[Counter, float]]
    interaction: str = ""  # where the request is counted as a call of it


@dataclass(frozen=True, slots=True)
class PastUse:
    """One finished request, for `restore`."""

    age_s: float
    tenant: str
    tokens: int
    cost: float
    bursts: tuple[BudgetPolicy, ...] = ()


class Claim(msgspec.Struct):
    """What a hold would take, found out before anything is taken."""

    bursts: list[BurstBucket] = []
    sustained: list[tuple[Counter, float]] = []
    goes_on: bool = False
    demote: bool = False
    alerts: tuple[str, ...] = ()
    refusals: list[Refused] = []


class LocalAccounts:
    """Times are monotonic seconds (`now`) and aware UTC (`at`)."""

    def __init__(self) -> None:
        self._tenants: OrderedDict[str, TenantUse] = OrderedDict()
        self._bursts: OrderedDict[str, BurstBucket] = OrderedDict()
        self._sustained: OrderedDict[str, SustainedAccount] = OrderedDict()
        self._open: dict[str, Reservation] = {}
        self._kind = 0  # of what was looked at last, to be forgotten if it is idle

    @property
    def open_reservations(self) -> int:
        return len(self._open)

    @property
    def remembered_tenants(self) -> int:
        return len(self._tenants)

    def reserve(self, hold: Hold, now: float, at: datetime) -> Admitted | Refused:
        """Take the hold on every rate, depth and budget at once, or on none.

        Raises:
            ValueError: this request id already has an open reservation.
        """
        if hold.request_id in self._open:
            raise ValueError(f"request {hold.request_id} is already reserved")
        self._forget_idle(now, at)
        use = self._use(hold.tenant, now)
        claim = self._claim(hold, use, now, at)
        if isinstance(claim, Refused):
            return claim
        tokens = self._take(hold, use, claim, now)
        rates = rate_state(use, hold.limits, now)
        return Admitted(rates, claim.demote, claim.alerts, claim.goes_on, tokens)

    def charge(self, request_id: str, tokens: int, cost: float, now: float) -> None:
        """What it took so far, all told; counts only past what is held for it already."""
        taken = self._open.get(request_id)
        if taken is None:
            return
        if (more_tokens := tokens - taken.tokens) > 0:
            taken.tokens = tokens
            taken.use.tokens.correct(taken.slot, more_tokens)
            taken.use.held.correct(taken.slot, more_tokens)
        if (more := cost - taken.cost) > 0:
            taken.cost = cost
            for bucket, _ in taken.bursts:
                bucket.drain(bucket.refill, now)
                bucket.charge(more)
            taken.sustained = [(each, each.charge(held, cost)) for each, held in taken.sustained]

    def settle(self, request_id: str, tokens: int, cost: float, now: float, at: datetime) -> None:
        """Replace the hold by what was used, in the windows it was taken in. Only the first call
        for an id counts; an unknown id is nothing."""
        taken = self._open.pop(request_id, None)
        if taken is None:
            return
        taken.use.open -= 1
        taken.use.tokens.correct(taken.slot, tokens - taken.tokens)
        taken.use.held.correct(taken.slot, -taken.tokens)
        for bucket, number in taken.bursts:
            bucket.drain(bucket.refill, now)
            bucket.settle(number, taken.cost, cost)
        for counter, held in taken.sustained:
            counter.settle(held, cost)

    def release(self, request_id: str, now: float, at: datetime) -> None:
        """It was turned away after all: as if it had never been here."""
        taken = self._open.get(request_id)
        if taken is not None:
            taken.use.requests.correct(taken.slot, -1)
            if taken.interaction:
                taken.use.interactions.give_back(taken.interaction)
            self.settle(request_id, 0, 0.0, now, at)

    def rates(self, tenant: str, limits: Limits, now: float) -> RateState:
        """As `Admitted.rates`, without asking for anything."""
        use = self._tenants.get(tenant) or TenantUse()
        use.advance(now)
        return rate_state(use, limits, now)

    def budgets(
        self, budgets: tuple[BudgetPolicy, ...], now: float, at: datetime
    ) -> list[dict[str, Any]]:
        """For pages: account, name, kind, limit, used, reserved, remaining, resets_at (ISO 8601,
        UTC; of a burst budget: when it is full again). `used` is without `reserved`."""
        return [self._shown(policy, now, at) for policy in budgets]

    def restore(
        self,
        used: Iterable[tuple[BudgetPolicy, float]],
        recent: Iterable[PastUse],
        now: float,
        at: datetime,
    ) -> None:
        """Take up what the ledger says, before the first request: what each sustained budget used
        in its window at `at`, and the finished requests of the last minutes."""
        for policy, amount in used:
            self._account(policy).counter(policy, at, now).used = amount
        for past in sorted(recent, key=lambda past: -past.age_s):
            then = now - max(0.0, past.age_s)
            use = self._use(past.tenant, then)
            use.requests.add(then, 1)
            use.tokens.add(then, past.tokens)
            for policy in past.bursts:
                bucket = self._bucket(policy, then)
                bucket.settle(bucket.take(past.cost), past.cost, past.cost)

    def sustained(self) -> list[str]:
        """The accounts of sustained budgets that are remembered, for the ledger check."""
        return list(self._sustained)

    def windows(self, account: str) -> list[tuple[Window, float]]:
        """What was settled in each remembered window of a sustained budget."""
        known = self._sustained.get(account)
        return [(counter.window, counter.used) for counter in known.counters] if known else []

    def correct(self, policy: BudgetPolicy, units: float, now: float, at: datetime) -> None:
        """Take up what the ledger was corrected by in the window at `at`; nothing where that
        window is remembered no more."""
        counter = self._account(policy).counter(policy, at, now)
        if at in counter.window:
            counter.used = max(0.0, counter.used + units)

    # --- deciding: nothing here takes anything ----------------------------------------------

    def _claim(self, hold: Hold, use: TenantUse, now: float, at: datetime) -> Claim | Refused:
        goes_on = bool(hold.interaction) and use.interactions.goes_on(hold.interaction, now)
        refusal = None if goes_on else rate_refusal(hold, use, now)
        if refusal:
            return refusal
        claim = Claim(goes_on=goes_on)
        for kind in ("burst", "sustained"):
            for policy in hold.budgets:
                if policy.kind == kind:
                    self._claim_budget(policy, hold, use, claim, now, at)
            if claim.refusals:
                return max(claim.refusals, key=lambda refused: refused.retry_after_s)
        if _depth_reached(use.open, hold):
            return refusals.depth(hold, use.open, rate_state(use, hold.limits, now))
        return claim

    def _claim_budget(
        self,
        policy: BudgetPolicy,
        hold: Hold,
        use: TenantUse,
        claim: Claim,
        now: float,
        at: datetime,
    ) -> None:
        if policy.kind == "burst":
            bucket = self._bucket(policy, now)
            claim.bursts.append(bucket)
            if claim.goes_on or bucket.fits(policy, hold.cost):
                return
        else:
            counter = self._account(policy).counter(policy, at, now)
            need = counter.need(policy, hold.cost, hold.ceiling_cost)
            claim.sustained.append((counter, hold.cost if need is None else need))
            if need is not None:
                return
        if policy.on_exhausted == "demote":
            claim.demote = True
        elif policy.on_exhausted == "alert":
            claim.alerts += (policy.account,)
        else:
            rates = rate_state(use, hold.limits, now)
            claim.refusals.append(
                refusals.burst(policy, bucket, hold.cost, rates)
                if policy.kind == "burst"
                else refusals.sustained(policy, counter, hold.cost, at, rates)
            )

    # --- taking -----------------------------------------------------------------------------

    def _take(self, hold: Hold, use: TenantUse, claim: Claim, now: float) -> int:
        """Returns the tokens that it holds in the minute."""
        use.open += 1
        use.requests.add(now, 1)
        tokens = tokens_to_hold(hold, use)
        slot = use.tokens.add(now, tokens)
        use.held.add(now, tokens)
        for counter, amount in claim.sustained:
            counter.take(amount)
        bursts = [(bucket, bucket.take(hold.cost)) for bucket in claim.bursts]
        name = hold.interaction
        counted = name if name and use.interactions.take(name, now) else ""
        self._open[hold.request_id] = Reservation(
            use, slot, tokens, hold.cost, bursts, claim.sustained, counted
        )
        return tokens

    # --- finding and forgetting --------------------------------------------------------------

    def _use(self, tenant: str, now: float) -> TenantUse:
        use = self._tenants.get(tenant)
        if use is None:
            use = self._tenants[tenant] = TenantUse()
        use.advance(now)
        return use

    def _bucket(self, policy: BudgetPolicy, now: float) -> BurstBucket:
        bucket = self._bursts.get(policy.account)
        if bucket is None:
            bucket = self._bursts[policy.account] = BurstBucket(now)
        bucket.drain(policy.refill_per_second, now)
        return bucket

    def _account(self, policy: BudgetPolicy) -> SustainedAccount:
        account = self._sustained.get(policy.account)
        if account is None:
            account = self._sustained[policy.account] = SustainedAccount()
        return account

    def _forget_idle(self, now: float, at: datetime) -> None:
        """Look at one of some kind in turn; what is idle is as if it had never been."""
        self._kind = kind = (self._kind + 1) % 3
        if kind == 0 and self._tenants:
            name, use = self._tenants.popitem(last=False)
            if not use.idle(now):
                self._tenants[name] = use
        elif kind == 1 and self._bursts:
            name, bucket = self._bursts.popitem(last=False)
            if not bucket.idle(now):
                self._bursts[name] = bucket
        elif kind == 2 and self._sustained:
            name, account = self._sustained.popitem(last=False)
            if not account.idle(at, now):
                self._sustained[name] = account

    def _shown(self, policy: BudgetPolicy, now: float, at: datetime) -> dict[str, Any]:
        if policy.kind == "burst":
            bucket = self._bucket(policy, now)
            used, reserved = max(0.0, bucket.used - bucket.reserved), bucket.reserved
            resets = at + timedelta(seconds=refusals.full_again_s(policy, bucket.used))
        else:
            counter = self._account(policy).counter(policy, at, now)
            used, reserved, resets = counter.used, counter.reserved, counter.window.end
        return shown_budget(policy, used, reserved, resets)


def shown_budget(
    policy: BudgetPolicy, used: float, reserved: float, resets: datetime
) -> dict[str, Any]:
    """One of `LocalAccounts.budgets`."""
    return {
        "account": policy.account,
        "name": policy.name,
        "kind": policy.kind,
        "limit": policy.cost,
        "used": used,
        "reserved": reserved,
        "remaining": max(0.0, policy.cost - used - reserved),
        "resets_at": resets.strftime("%Y-%m-%dT%H:%M:%SZ"),
    }


def _depth_reached(open_now: int, hold: Hold) -> bool:
    """The queue is full as it stands, or would be once all that may run does. Where nothing may
    run, nothing may wait either."""
    running, queued = hold.limits.max_running, hold.limits.max_queued
    if running == 0:
        return True
    if queued is None:
        return False
    if hold.queued and hold.queued >= queued:
        return True
    return running is not None and open_now >= running + queued
