"""What one tenant is told of itself: what is left of its budgets, its limits, what runs now, and
why a request of its own was refused.

1. Nothing here depends on any other tenant: no total of a pool, no place in a queue, no share.
2. One request is told by the limits of the policy that it was refused under; budgets, and what is
   told of a range, are as they stand now.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

from django.utils.timezone import localtime

from metering import selectors
from metering.core import refusals
from metering.core.record import UsageRecord
from metering.dashboards import budgets, live, reasons
from metering.dashboards.budgets import Left
from metering.dashboards.reasons import ASK, Why
from tenants import selectors as policy
from tenants.core.document import Document, Tenant, Tier
from tenants.core.effective import limits_of, soft_limits_of, tier_of

SHOWN_WINDOWS = 1
LIMIT_LABELS = {
    "requests_per_minute": "Requests a minute",
    "tokens_per_minute": "Tokens a minute",
    "max_running": "Running at once",
    "max_queued": "Waiting at once",
    "max_input_tokens": "Tokens of one prompt",
    "max_output_tokens": "Tokens of one answer",
}
QUEUED = ("queue_timeout", "predicted_wait")
SOFT = " while others wait for the model"
SPREAD = "Spread requests over time instead of sending them at once, and wait for its retry-after."
SAVE = "Until then send less: shorter prompts, a lower max_tokens; or ask an admin for more."


@dataclass(frozen=True, slots=True)
class Standing:
    """`limits` are those that are set, by their field's name."""

    known: bool = False  # a gateway tells
    running: int = 0
    queued: int = 0
    budgets: list[Left] = field(default_factory=list)
    limits: Mapping[str, int] = field(default_factory=dict)
    soft: frozenset[str] = frozenset()  # limits that refuse only while others wait
    waits: Mapping[str, float] = field(default_factory=dict)  # by lane, its max_queue_seconds

    @property
    def limit_rows(self) -> list[tuple[str, int]]:
        return [(LIMIT_LABELS[name], value) for name, value in self.limits.items()]

    def why(self, reason: str, lane: str = "", needs: float = 0.0) -> Why:
        """Of one `throttle_reason`, with the figures of what refused. `needs`: units, of the
        request that is asked about."""
        left = next((each for each in self.budgets if each.owned.account == reason), None)
        if left is not None:
            return of_burst(left) if left.kind == "burst" else of_sustained(left, needs)
        known, limit = reasons.of_limit(reason), self.limits.get(reason)
        if limit is None:
            longest = self.waits.get(lane) if reason in QUEUED else None
            told = f"{known.text}: {longest:,.6g} s in {lane}" if longest else known.text
            return replace(known, text=told)
        soft = SOFT if reason in self.soft else ""
        return replace(known, text=f"{known.text}: at most {limit:,}{soft}")


def standing(name: str, document: Document, at: datetime) -> Standing:
    now = live.combine(selectors.latest_samples(at))
    here = now.tenants.get(name) or live.Standing()
    tenant = next((each for each in document.tenants if each.name == name), None)
    if tenant is None:
        return Standing(bool(now.gateways), here.running, here.queued)
    left = budgets_left(tenant, tier_of(tenant, document), here, at)
    found = Standing(bool(now.gateways), here.running, here.queued, left)
    return under(document, tenant, found)


def under(document: Document, tenant: Tenant, found: Standing) -> Standing:
    """With the limits that this document gives the tenant."""
    tier = tier_of(tenant, document)
    limits = {key: value for key, value in limits_of(tenant, tier).items() if value is not None}
    soft = frozenset(soft_limits_of(tenant, tier))
    waits = {lane.name: lane.max_queue_seconds for lane in document.lanes}
    return replace(found, limits=limits, soft=soft, waits=waits)


def budgets_left(tenant: Tenant, tier: Tier, here: live.Standing, at: datetime) -> list[Left]:
    """Its own, its applications' and its keys'."""
    owned = budgets.owned_by(tenant, tier)
    owned += budgets.owned_by_keys(policy.key_budgets(tenant.name))
    windows = budgets.newest_windows(owned, SHOWN_WINDOWS, at)
    return budgets.left(owned, here.budgets, windows, tenant.zone, at)


def of_burst(left: Left) -> Why:
    refill = left.owned.budget.refill_per_second or 0.0
    what = f"{left.limit:,.0f} units, refilled by {refill:,.0f} a second"
    return Why(f"Burst budget {named(left)} was used up: {what}", SPREAD)


def of_sustained(left: Left, needs: float = 0.0) -> Why:
    often = refusals.each(left.owned.budget.period or "")
    text = f"Budget {named(left)} was used up: {left.limit:,.0f} units {often}"
    if left.resets is None:
        return Why(text, ASK)
    anew = f"It starts anew at {localtime(left.resets):%d %b %H:%M}. {SAVE}"
    if left.level == "bad" or left.remaining is None:
        return Why(text, anew)
    here = f"By now {left.remaining:,.0f} units are left in it"
    return Why(
        text,
        f"{here}, and this one needs {needs:,.0f}. {anew}"
        if needs > left.remaining
        else f"{here}.",
    )


def named(left: Left) -> str:
    owned = left.owned
    if owned.key:
        return f"{left.name} of key fl_{owned.key}"
    return f"{left.name} of {owned.application or 'the tenant'}"


@dataclass(frozen=True, slots=True)
class Found:
    """One request, and what there is to say of its end; `why` is None where it was served."""

    record: UsageRecord
    why: Why | None


def find(request_id: str, tenant: str, now: Standing) -> Found | None:
    record = selectors.find_record(request_id, tenant)
    if record is None:
        return None
    if not record.throttle_reason:
        return Found(record, reasons.why(record))
    then = _then(record, now)
    why = then.why(record.throttle_reason, record.lane, record.estimated_cost)
    limit = now.limits.get(record.throttle_reason)
    if limit is not None and limit != then.limits.get(record.throttle_reason):
        why = replace(why, advice=f"By now it is {limit:,}. {why.advice}")
    return Found(record, why)


def _then(record: UsageRecord, now: Standing) -> Standing:
    document = policy.revision_document(record.policy_revision)
    tenant = next((each for each in document.tenants if each.name == record.tenant), None)
    return under(document, tenant, now) if tenant else now
