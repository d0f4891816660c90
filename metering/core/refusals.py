"""Every refusal that the accounts can give, in words: the limit, its value, its use, when to come.

One place, so that code, message and wait of an answer are always of the same limit.
"""

from __future__ import annotations

from datetime import datetime
from math import ceil

from metering.core.budgets import BurstBucket, Counter
from metering.core.hold import Hold, RateState, Refused
from metering.core.prose import the_budget
from tenants.core.periods import days_of
from tenants.core.snapshot import BudgetPolicy

SOON_S = 1.0  # least wait; and the wait where only the end of a running request helps
LONGEST_S = 366 * 86_400.0  # that a number of seconds is of use to a caller
NEVER_S = 86_400.0  # a limit of zero, a bucket without refill: come back when policy may differ


def requests(hold: Hold, limit: int, used: int, wait_s: float, rates: RateState) -> Refused:
    wait_s = _bounded(wait_s if limit > 0 else NEVER_S)
    return Refused(
        limit="requests_per_minute",
        code="rate_limit_exceeded",
        message=(
            f"Tenant '{hold.tenant}' may send {_requests(limit)} a minute (requests_per_minute); "
            f"{used} are used. Come back in {ceil(wait_s)} s."
        ),
        retry_after_s=wait_s,
        rates=rates,
    )


def tokens(
    hold: Hold, limit: int, used: int, held: int, wait_s: float | None, rates: RateState
) -> Refused:
    """`wait_s` is None where only what requests under way hold is in the way."""
    come = "Come back when one has ended, or ask for a smaller max_tokens."
    if wait_s is not None:
        wait_s = _bounded(wait_s if limit > 0 else NEVER_S)
        come = f"Come back in {ceil(wait_s)} s."
    most = max(hold.tokens, hold.ceiling_tokens)
    return Refused(
        limit="tokens_per_minute",
        code="rate_limit_exceeded",
        message=(
            f"Tenant '{hold.tenant}' may use {limit} tokens a minute (tokens_per_minute); {used} "
            f"are used, {held} are held by requests under way, and this one may take {most}. {come}"
        ),
        retry_after_s=SOON_S if wait_s is None else wait_s,
        rates=rates,
    )


def burst(policy: BudgetPolicy, bucket: BurstBucket, cost: float, rates: RateState) -> Refused:
    wait_s = min(_bounded(bucket.wait_s(policy, cost)), LONGEST_S) if policy.cost > 0 else NEVER_S
    return Refused(
        limit=policy.account,
        code="rate_limit_exceeded",
        message=(
            f"{the_budget(policy.account)} holds {_set(policy.cost)} units; "
            f"{_units(policy.cost - bucket.used)} are left and this request needs {_units(cost)}. "
            f"It refills by {_set(policy.refill_per_second)} a second. "
            f"Come back in {ceil(wait_s)} s."
        ),
        retry_after_s=wait_s,
        rates=rates,
    )


def sustained(
    policy: BudgetPolicy, counter: Counter, cost: float, at: datetime, rates: RateState
) -> Refused:
    """Used up until the window ends; or held by running requests, and then it is worth trying
    again soon, so the code must not say that the quota is gone."""
    held = counter.only_held(policy, cost)
    left_s = _bounded((counter.window.end - at).total_seconds())
    assert policy.period is not None
    come = f"{next_one(policy.period)} at {counter.window.end:%Y-%m-%dT%H:%M:%SZ}"
    return Refused(
        limit=policy.account,
        code="rate_limit_exceeded" if held else "insufficient_quota",
        message=(
            f"{the_budget(policy.account)} allows {_units(policy.cost)} units "
            f"{each(policy.period)}; {_units(counter.used)} are used, {_units(counter.reserved)} "
            f"are held by {_requests(counter.holds, 'running ')}, "
            f"and this one needs {_units(cost)}. "
            + ("Come back when one has ended." if held else f"{come}, in {ceil(left_s)} s.")
        ),
        retry_after_s=SOON_S if held else left_s,
        rates=rates,
    )


def depth(hold: Hold, open_now: int, rates: RateState) -> Refused:
    running, queued = hold.limits.max_running, hold.limits.max_queued
    wait_s, come = SOON_S, "Come back when one has ended."
    limit = "max_queued" if queued else "max_running"
    if running == 0:
        limit, may = "max_running", "run no requests (max_running is 0)"
        wait_s, come = NEVER_S, "Ask your platform team to raise it."
    elif running is not None and open_now >= running + (queued or 0):
        may = (
            f"run {_requests(running)} at once (max_running) and queue {queued} more (max_queued); "
            f"open now: {open_now}"
        )
    else:
        limit = "max_queued"
        may = f"queue {_requests(queued)} (max_queued); waiting now: {hold.queued}"
    return Refused(
        limit=limit,
        code="rate_limit_exceeded",
        message=f"Tenant '{hold.tenant}' may {may}. {come}",
        retry_after_s=wait_s,
        rates=rates,
    )


def no_waiting(hold: Hold, rates: RateState) -> Refused:
    """There is no place at once, and `max_queued` is 0."""
    return Refused(
        limit="max_queued",
        code="rate_limit_exceeded",
        message=(
            f"Tenant '{hold.tenant}' may queue no requests (max_queued is 0), and no place is free "
            "at this moment. Come back when one has ended."
        ),
        retry_after_s=SOON_S,
        rates=rates,
    )


def each(period: str) -> str:
    """ "an hour", "a day", "in 90 days"."""
    days = days_of(period)
    return f"in {days} days" if days else f"{'an' if period == 'hour' else 'a'} {period}"


def next_one(period: str) -> str:
    days = days_of(period)
    return f"The next {days} days begin" if days else f"The next {period} begins"


def full_again_s(policy: BudgetPolicy, used: float) -> float:
    """How long a burst budget takes to refill."""
    refill = policy.refill_per_second
    return min(used / refill if refill > 0 else 0.0, NEVER_S)


def _bounded(wait_s: float) -> float:
    return max(SOON_S, wait_s) if wait_s != float("inf") else NEVER_S


def _requests(number: int | None, which: str = "") -> str:
    return f"{number} {which}request{'' if number == 1 else 's'}"


def _units(amount: float) -> str:
    return f"{round(amount, 2):.15g}"


def _set(amount: float) -> str:
    """As policy sets it: what refills by 0.001 a second does not refill by 0."""
    return f"{amount:.3g}" if amount < 0.01 else _units(amount)
