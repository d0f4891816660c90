"""Holds into messages for the functions of `accounts.lua`, and their answers into verdicts.

The server's MessagePack is of the old kind: it knows text, and no bytes.

Words are those of `metering.core.refusals`, so that a caller cannot tell which accounts refused it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec

from metering.core import refusals
from metering.core.accounts import PastUse, shown_budget
from metering.core.budgets import BurstBucket, Counter
from metering.core.hold import Admitted, Hold, RateState, Refused
from metering.core.tenant_use import rates_of
from metering.core.windows import EPOCH, Window, window_at
from tenants.core.snapshot import BudgetPolicy, Limits

encode = msgspec.msgpack.Encoder().encode
decode = msgspec.msgpack.Decoder().decode
encode_json = msgspec.json.Encoder().encode

MICROSECOND = timedelta(microseconds=1)


def micros(at: datetime) -> int:
    return (at - EPOCH) // MICROSECOND


def instant(micros_: float) -> datetime:
    return EPOCH + int(micros_) * MICROSECOND


class BudgetMessage(msgspec.Struct, omit_defaults=True):
    account: str
    kind: str
    cost: float
    refill: float = 0.0
    exhausted: str = "reject"
    shape: str = ""
    # of the window that `at` is in
    from_: int = msgspec.field(name="from", default=0)
    to: int = 0
    used: float | None = None  # what the ledger says
    most: float | None = None  # by how much it may be raised


class Message(msgspec.Struct, omit_defaults=True, kw_only=True):
    """One for all verbs; what is left out is nil there."""

    id: str | int = ""
    at: int = 0
    tokens: int | None = None
    cost: float | None = None
    replica: str = ""
    budgets: list[BudgetMessage] | None = None
    ceiling: float | None = None
    ceiling_tokens: int | None = None
    interaction: str | None = None
    queued: int | None = None
    rpm: int | None = None
    tpm: int | None = None
    max_running: int | None = None
    max_queued: int | None = None
    soft_requests: bool = False
    soft_tokens: bool = False
    entry: str | None = None
    adopt: bool = False
    guess: bool = False


class Windows:
    """The calendar, looked up once a window: a zone's rules cost more than all else here."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], tuple[Window, str, int, int]] = {}

    def of(self, policy: BudgetPolicy, at: datetime) -> tuple[Window, str, int, int]:
        assert policy.period is not None
        shape = policy.period, policy.timezone
        known = self._known.get(shape)
        if known is None or at not in known[0]:
            window = window_at(*shape, at)
            known = window, "|".join(shape), micros(window.start), micros(window.end)
            self._known[shape] = known
        return known

    def message(
        self, policy: BudgetPolicy, at: datetime, used: float | None = None
    ) -> BudgetMessage:
        if policy.period is None:
            return BudgetMessage(
                policy.account,
                "burst",
                policy.cost,
                policy.refill_per_second,
                policy.on_exhausted,
            )
        _, shape, start, end = self.of(policy, at)
        return BudgetMessage(
            policy.account,
            "sustained",
            policy.cost,
            exhausted=policy.on_exhausted,
            shape=shape,
            from_=start,
            to=end,
            used=used,
        )


def reserve(
    hold: Hold, at: datetime, windows: Windows, replica: str, adopt: bool = False
) -> Message:
    limits, soft = hold.limits, hold.soft_limits
    return Message(
        id=hold.request_id,
        at=micros(at),
        replica=replica,
        tokens=hold.tokens,
        cost=hold.cost,
        budgets=[windows.message(policy, at) for policy in hold.budgets],
        ceiling=hold.ceiling_cost,
        ceiling_tokens=hold.ceiling_tokens,
        interaction=hold.interaction or None,
        queued=hold.queued,
        rpm=limits.requests_per_minute,
        tpm=limits.tokens_per_minute,
        max_running=limits.max_running,
        max_queued=limits.max_queued,
        soft_requests="requests_per_minute" in soft,
        soft_tokens="tokens_per_minute" in soft,
        adopt=adopt,
    )


def ending(
    request_id: str, tokens: int, cost: float, at: datetime, *, guess: bool = False
) -> bytes:
    """Of `charge`, `settle` and `release`. `guess`: by who does not know how it ends."""
    message = Message(id=request_id, at=micros(at), tokens=tokens, cost=cost, guess=guess)
    return encode(message)


def asked(request_id: str, entry: str) -> bytes:
    return encode(Message(id=request_id, entry=entry))


def about(budgets: Iterable[BudgetPolicy], at: datetime, windows: Windows) -> bytes:
    """Of `shown`."""
    given = [windows.message(policy, at) for policy in budgets]
    return encode(Message(at=micros(at), budgets=given))


def ledger_says(
    used: Iterable[tuple[BudgetPolicy, float, float | None]],
    newest: int,
    at: datetime,
    windows: Windows,
    gone: bool = False,
) -> bytes:
    """Of `floor`: budget, what the ledger says, by how much to raise it at most (None: all of it).
    `newest` is the correction up to which they are contained. `gone`: only what is not there."""
    given = []
    for policy, amount, most in used:
        message = windows.message(policy, at, amount)
        message.most = most
        given.append(message)
    return encode({"budgets": given, "newest": newest, "at": micros(at), "gone": gone})


def correction(
    policy: BudgetPolicy, units: float, number: int, at: datetime, windows: Windows
) -> bytes:
    _, shape, start, end = windows.of(policy, at)
    plain = {"account": policy.account, "units": units, "id": number, "at": micros(at)}
    return encode({**plain, "shape": shape, "from": start, "to": end})


def past(recent: Iterable[PastUse]) -> bytes:
    return encode(
        {
            "past": [
                {
                    "age": max(0.0, each.age_s),
                    "tokens": each.tokens,
                    "cost": each.cost,
                    "bursts": [
                        {"account": b.account, "refill": b.refill_per_second} for b in each.bursts
                    ],
                }
                for each in sorted(recent, key=lambda each: -each.age_s)
            ]
        }
    )


# --- answers ----------------------------------------------------------------------------------


def rate_state(limits: Limits, told: Sequence[Any]) -> RateState:
    return rates_of(limits, *told)


class NotListed(Exception):
    """This gateway was taken for dead: nothing is taken for it under its old name."""


def verdict(hold: Hold, at: datetime, answer: Sequence[Any]) -> Admitted | Refused:
    """
    Raises:
        NotListed
    """
    if answer[0] == "unlisted":
        raise NotListed
    kind, told, *more = answer
    rates = rate_state(hold.limits, told)
    if kind == "admitted":
        demote, alerts, goes_on, tokens = more
        over = tuple(hold.budgets[place - 1].account for place in alerts)
        return Admitted(rates, demote, over, goes_on, tokens)
    if kind == "budgets":
        found = (_budget_refusal(hold, at, full, rates) for full in more[0])
        return max(found, key=lambda refused: refused.retry_after_s)
    return _limit_refusal(kind, hold, more, rates)


def _limit_refusal(kind: str, hold: Hold, more: list[Any], rates: RateState) -> Refused:
    if kind == "depth":
        return refusals.depth(hold, more[0], rates)
    if kind == "requests":
        used, wait_s = more
        limit = hold.limits.requests_per_minute
        assert limit is not None
        return refusals.requests(hold, limit, used, wait_s, rates)
    used, held, wait_s = more
    limit = hold.limits.tokens_per_minute
    assert limit is not None
    return refusals.tokens(hold, limit, used, held, None if wait_s is False else wait_s, rates)


def _budget_refusal(hold: Hold, at: datetime, full: list[Any], rates: RateState) -> Refused:
    place, used, *more = full
    policy = hold.budgets[place - 1]
    if policy.kind == "burst":
        bucket = BurstBucket(0.0)
        bucket.used = used
        return refusals.burst(policy, bucket, hold.cost, rates)
    reserved, holds, start, end = more
    counter = Counter(policy, Window(instant(start), instant(end)), 0.0, used)
    counter.reserved, counter.holds = reserved, holds
    return refusals.sustained(policy, counter, hold.cost, at, rates)


def shown(
    budgets: Sequence[BudgetPolicy], answer: Sequence[Sequence[float]], at: datetime
) -> list[dict[str, Any]]:
    found = []
    for policy, (used, reserved, *window) in zip(budgets, answer, strict=True):
        if policy.kind == "burst":
            resets = at + timedelta(seconds=refusals.full_again_s(policy, used))
            found.append(shown_budget(policy, max(0.0, used - reserved), reserved, resets))
        else:
            found.append(shown_budget(policy, used, reserved, instant(window[1])))
    return found
