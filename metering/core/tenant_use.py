"""What one tenant took in the last minute, and whether one request more fits.

1. Tokens a minute hold the most that the caller said it would take (its `max_tokens`), as long as
   requests beside it hold some too; alone it is let in on what is expected, and holds what is left.
   So those that name a bound pass the limit by one request's output at most, however short answers
   had been before (case D04), and a large bound alone is no reason to refuse.
2. A caller that names no bound is held to what is expected; what runs past that counts as it comes.
3. A bucket repays what it was overdrawn by and a minute forgets it; so burst budgets, which hold
   what is expected, need no such rule.
"""

from __future__ import annotations

from metering.core import refusals
from metering.core.hold import Hold, RateState, Refused
from metering.core.interactions import Interactions
from metering.core.rates import SlidingWindow
from tenants.core.snapshot import Limits


class TenantUse:
    """What one tenant took in the last minute, and how many of its requests are open."""

    __slots__ = ("held", "interactions", "open", "requests", "tokens")

    def __init__(self) -> None:
        self.requests = SlidingWindow()
        self.tokens = SlidingWindow()
        self.held = SlidingWindow()  # the part of `tokens` that calls under way hold
        self.interactions = Interactions()
        self.open = 0

    def advance(self, now: float) -> None:
        self.requests.advance(now)
        self.tokens.advance(now)
        self.held.advance(now)

    def idle(self, now: float) -> bool:
        if self.open:
            return False
        self.advance(now)
        self.interactions.forget(now)
        return not (self.requests.total or self.tokens.total or self.interactions)


def rate_refusal(hold: Hold, use: TenantUse, now: float) -> Refused | None:
    """Requests a minute, then tokens a minute; those that are soft at this moment refuse nobody."""
    limits, soft = hold.limits, hold.soft_limits
    limit = limits.requests_per_minute
    if (
        limit is not None
        and "requests_per_minute" not in soft
        and not _fits(limit, use.requests.total, 1)
    ):
        wait_s = use.requests.wait_s(now, _most(limit, 1))
        return refusals.requests(
            hold, limit, use.requests.total, wait_s, rate_state(use, limits, now)
        )
    limit = limits.tokens_per_minute
    if limit is None or "tokens_per_minute" in soft or _has_room_for_tokens(hold, use, limit):
        return None
    return _token_refusal(hold, use, limit, now)


def _token_refusal(hold: Hold, use: TenantUse, limit: int, now: float) -> Refused:
    held = use.held.total
    only_held = held > 0 and _fits(limit, use.tokens.total - held, hold.tokens)
    wait_s = None if only_held else use.tokens.wait_s(now, _most(limit, hold.tokens))
    rates = rate_state(use, hold.limits, now)
    return refusals.tokens(hold, limit, use.tokens.total - held, held, wait_s, rates)


def _most(limit: int, need: int) -> int:
    """How much may be taken already; a request past the whole limit runs alone."""
    return limit - max(1, min(need, limit))


def _fits(limit: int, taken: int, need: int) -> bool:
    return taken <= _most(limit, need)


def _has_room_for_tokens(hold: Hold, use: TenantUse, limit: int) -> bool:
    if _fits(limit, use.tokens.total, max(hold.tokens, hold.ceiling_tokens)):
        return True
    return not use.held.total and _fits(limit, use.tokens.total, hold.tokens)


def tokens_to_hold(hold: Hold, use: TenantUse) -> int:
    """The most that it may take, as far as there is room; what is expected in any case."""
    limit = hold.limits.tokens_per_minute
    if limit is None:
        return hold.tokens
    return max(hold.tokens, min(hold.ceiling_tokens, limit - use.tokens.total))


def rate_state(use: TenantUse, limits: Limits, now: float) -> RateState:
    requests, tokens = limits.requests_per_minute, limits.tokens_per_minute
    return rates_of(
        limits,
        use.requests.total,
        0.0 if requests is None else use.requests.reset_s(now),
        use.tokens.total,
        0.0 if tokens is None else use.tokens.reset_s(now),
    )


def rates_of(
    limits: Limits, used_requests: int, requests_s: float, used_tokens: int, tokens_s: float
) -> RateState:
    """`…_s`: until the minute is empty again."""
    requests, tokens = limits.requests_per_minute, limits.tokens_per_minute
    return RateState(
        limit_requests=requests,
        remaining_requests=None if requests is None else max(0, requests - used_requests),
        reset_requests_s=0.0 if requests is None else requests_s,
        limit_tokens=tokens,
        remaining_tokens=None if tokens is None else tokens - used_tokens,
        reset_tokens_s=0.0 if tokens is None else tokens_s,
    )
