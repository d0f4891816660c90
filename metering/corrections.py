"""Corrections: a person's own entries in the ledger, and what puts a counter right again.

1. Each is written with its audit entry and a new version of the policy, in one transaction; the
   version's row lock makes their ids rise in the order in which they can be seen.
2. A running gateway looks for corrections whenever the version is another one. They are amounts to
   add, not values to set, so whatever is counted meanwhile stays.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

from django.db import IntegrityError, transaction
from django.db.models import F

from metering.core.accounts import LocalAccounts
from metering.core.windows import Window, window_at
from metering.models import BudgetWindow, Correction
from metering.restore import budget_index, load_returning
from metering.store import BudgetOf
from tenants.core.snapshot import BudgetPolicy, PolicySnapshot
from tenants.core.text import plain
from tenants.selectors import load_snapshot
from tenants.services import Actor, hold, record_counter, require

MOST_UNITS = 1e15
LONGEST_ID = 500  # that of a form holds the account


class CannotCorrect(ValueError):
    """What was asked for is wrong, in `field`; nothing was changed."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field


class IdTaken(CannotCorrect):
    """Another correction was made under this id."""


@dataclass(frozen=True, slots=True)
class Made:
    correction: Correction
    used: float  # in that window, now
    created: bool  # False: it had been made before, under the same id


def correct(
    actor: Actor,
    account: str,
    units: float,
    reason: str,
    at: datetime,
    given_id: str | None = None,
) -> Made:
    """Add `units` to what an account used in its window at `at` (below zero: give back), as an
    entry of the ledger. Under one `given_id` it is made once, however often it is asked for.

    Raises:
        CannotCorrect: there is no such sustained budget, or it has not used as much as is to be
            taken back, or the input is wrong.
        IdTaken: another correction has this `given_id`.
        tenants.errors.NotAllowed: the actor may not edit policy.
    """
    require(actor, "policy.edit")
    reason = plain(reason).strip()
    if not reason:
        raise CannotCorrect("reason", "a correction needs a reason")
    if given_id and not (given_id.isprintable() and len(given_id) <= LONGEST_ID):
        raise CannotCorrect("id", f"id takes up to {LONGEST_ID} printable characters")
    if not units or abs(units) > MOST_UNITS or units != units:
        raise CannotCorrect("units", "units takes a number that is not zero, up to 1e15")
    window = _window(load_snapshot(), account, at)
    order = Correction(
        account=account,
        at=at,
        units=units,
        actor=actor.name,
        reason=reason,
        given_id=given_id or None,
    )
    if before := _made_before(order, window):
        return before
    try:
        with transaction.atomic():
            hold()  # or of two at the same time both would tell the audit the same `old`
            old = _used(account, window)
            record_counter(actor, account, old, old + units, reason)
            _move(account, window, units)
            order.save()
            return Made(order, _used(account, window), created=True)
    except IntegrityError:  # the same order, carried out at the same time
        if before := _made_before(order, window):
            return before
        raise


def _made_before(order: Correction, window: Window) -> Made | None:
    if order.given_id is None:
        return None
    known = Correction.objects.filter(given_id=order.given_id).first()
    if known is None:
        return None
    if (known.account, known.units) != (order.account, order.units):
        raise IdTaken("id", f"id {order.given_id!r} is another correction's, of {known.account}")
    return Made(known, _used(order.account, window), created=False)


def _window(snapshot: PolicySnapshot, account: str, at: datetime) -> Window:
    policy = budget_index(snapshot).get(account)
    if policy is None:
        raise CannotCorrect(
            "account", f"no budget has the account {account!r}; e.g. tenant:acme/hourly"
        )
    if policy.period is None:
        raise CannotCorrect("account", f"{account} is a burst budget, which refills by itself")
    return window_at(policy.period, policy.timezone, at)


def _used(account: str, window: Window) -> float:
    row = BudgetWindow.objects.filter(
        account=account, window_start=window.start, window_end=window.end
    )
    return row.values_list("used", flat=True).first() or 0.0


def _move(account: str, window: Window, units: float) -> None:
    row, _ = BudgetWindow.objects.get_or_create(
        account=account, window_start=window.start, window_end=window.end
    )
    enough = BudgetWindow.objects.filter(id=row.id, used__gte=-units)
    if not enough.update(used=F("used") + units):
        raise CannotCorrect(
            "units",
            f"{account} used {row.used:,.12g} units in this window; no more can be given back",
        )


class CorrectionFeed:
    """Which corrections one gateway's counters contain."""

    def __init__(self, gateway: str, seen: int) -> None:
        self._gateway = gateway
        self.seen = seen

    def read(self) -> list[Correction]:
        """From the database: those that are not applied yet."""
        return list(Correction.objects.filter(id__gt=self.seen).order_by("id"))

    def read_change(
        self, counted: Collection[str], old: PolicySnapshot, new: PolicySnapshot, at: datetime
    ) -> tuple[list[Correction], list[tuple[BudgetPolicy, float]]]:
        """Those, and what budgets that come with `new` have used (`restore.load_returning`) with
        just these contained."""
        while True:
            found = self.read()
            returning = load_returning(counted, old, new, at)
            newest = found[-1].id if found else self.seen
            if not Correction.objects.filter(id__gt=newest).exists():
                return found, returning

    def apply(
        self, found: list[Correction], accounts: LocalAccounts, budget_of: BudgetOf, now: float
    ) -> None:
        for correction in found:
            policy = budget_of(correction.account)
            if policy and policy.period and correction.counter in ("", self._gateway):
                accounts.correct(policy, correction.units, now, correction.at)
            self.seen = correction.id
