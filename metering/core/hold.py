"""What admission asks of the accounts, and what they answer."""

from __future__ import annotations

from typing import Literal

import msgspec

from tenants.core.snapshot import BudgetPolicy, Limits, SoftLimit

LimitName = str  # a field of Limits, or the account of a budget ("tenant:acme/hourly")


class Hold(msgspec.Struct, frozen=True):
    """One request's claim, taken whole or not at all."""

    request_id: str
    tenant: str
    limits: Limits
    budgets: tuple[BudgetPolicy, ...]  # of tenant, application and key together
    tokens: int  # expected prompt + completion, for tokens_per_minute
    cost: float  # expected service units, held against burst budgets
    ceiling_cost: float  # the most that it can cost, held against sustained budgets
    ceiling_tokens: int = 0  # prompt + what its caller said that it may write, where it said so
    interaction: str = ""  # rates and burst refuse its first call only
    soft_limits: frozenset[SoftLimit] = frozenset()  # those that do not refuse at this moment
    queued: int = 0  # how many of the tenant's requests wait already


class RateState(msgspec.Struct, frozen=True):
    """What the x-ratelimit headers tell; None where the tenant has no such limit."""

    limit_requests: int | None = None
    remaining_requests: int | None = None
    reset_requests_s: float = 0.0  # until full again
    limit_tokens: int | None = None
    remaining_tokens: int | None = None  # below 0 while estimates are past the limit
    reset_tokens_s: float = 0.0


class Admitted(msgspec.Struct, frozen=True):
    rates: RateState
    demote: bool = False  # a budget with on_exhausted: demote is used up
    alerts: tuple[str, ...] = ()  # accounts used up whose on_exhausted is alert
    goes_on: bool = False  # a later call of its interaction
    tokens: int = 0  # held in the minute


class Refused(msgspec.Struct, frozen=True):
    """The one limit that decided; code, message and wait all describe it."""

    limit: LimitName
    code: Literal["rate_limit_exceeded", "insufficient_quota"]
    message: str
    retry_after_s: float
    rates: RateState
