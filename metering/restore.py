"""What a starting gateway takes up from the ledger, so that a restart forgets no use.

Bounded queries: one row for each budget with a running window, and the records of the last minutes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import Max, Sum

from metering.core.accounts import LocalAccounts, PastUse
from metering.core.record import TAKEN_FOR_DEAD
from metering.core.windows import Window, window_at
from metering.models import BudgetWindow, Correction, UsageRow
from tenants.core.snapshot import BudgetPolicy, PolicySnapshot

RATES_S = 61.0
LONGEST_S = 600.0  # how far back burst budgets are looked up
NOT_TAKEN = ("throttled", "rejected")
LONGEST_OPEN = timedelta(days=1)  # that a request waits and runs
LONGEST_KNOWN = timedelta(days=32)  # how old a record may be that a gateway still asks after
IDS_AT_ONCE = 500  # in one query


def budgets_by_tenant(snapshot: PolicySnapshot) -> dict[str, dict[str, BudgetPolicy]]:
    """Tenant → account → budget, of tenants, applications and keys together."""
    found: dict[str, dict[str, BudgetPolicy]] = {}
    for tenant in snapshot.tenants.values():
        budgets = [*tenant.budgets]
        for application in tenant.applications.values():
            budgets.extend(application.budgets)
        found[tenant.name] = {budget.account: budget for budget in budgets}
    for key in snapshot.keys.values():
        found.setdefault(key.tenant, {}).update({b.account: b for b in key.budgets})
    return found


def budget_index(snapshot: PolicySnapshot) -> dict[str, BudgetPolicy]:
    """Every budget of every owner, by its account."""
    return {a: b for budgets in budgets_by_tenant(snapshot).values() for a, b in budgets.items()}


def load_accounts(
    accounts: LocalAccounts, snapshot: PolicySnapshot, now: float, at: datetime
) -> int:
    """Call after `ledger.recover` and before the first request. Returns the id of the newest
    correction that is contained."""
    said = read_ledger(snapshot, at)
    recent = _recent(snapshot, at)
    accounts.restore(((each.policy, each.used) for each in said.sustained), recent, now, at)
    return said.correction


@dataclass(frozen=True, slots=True)
class Used:
    tenant: str
    policy: BudgetPolicy
    used: float


@dataclass(frozen=True, slots=True)
class LedgerSays:
    sustained: list[Used]  # of each budget whose running window has any
    correction: int  # the newest one that is contained


def read_ledger(snapshot: PolicySnapshot, at: datetime) -> LedgerSays:
    while True:
        correction = newest_correction()
        sustained = list(_sustained(snapshot, at))
        if newest_correction() == correction:  # else one may be in the windows, or not
            return LedgerSays(sustained, correction)


def read_recent(snapshot: PolicySnapshot, at: datetime) -> list[PastUse]:
    """The finished requests of the last minutes."""
    return list(_recent(snapshot, at))


def load_returning(
    counted: Collection[str], old: PolicySnapshot, new: PolicySnapshot, at: datetime
) -> list[tuple[BudgetPolicy, float]]:
    """What the ledger says of budgets that `new` has and `old` had not, and that are not `counted`
    here yet: of a tenant that left before a restart and comes back in the same window. For
    `LocalAccounts.restore`, before the first request under `new`."""
    coming = (budget_index(new).keys() - budget_index(old).keys()).difference(counted)
    if not coming:
        return []
    found = _sustained(new, at)
    return [(each.policy, each.used) for each in found if each.policy.account in coming]


def read_served(
    model: str, since: datetime, charged: Mapping[str, float]
) -> list[tuple[str, str, str, float]]:
    """Lane, tenant, application, and the service that they were given by requests which arrived
    `since` then; and what those of `charged` have cost more (or less) that were open then."""
    served: defaultdict[tuple[str, str, str], float] = defaultdict(float)
    rows = UsageRow.objects.filter(model=model, at__gte=since)
    for *whose, cost in rows.values_list("lane", "tenant", "application").annotate(Sum("cost")):
        served[tuple(whose)] += cost
    known = UsageRow.objects.filter(at__gte=since - LONGEST_OPEN)
    ids = list(charged)
    for first in range(0, len(ids), IDS_AT_ONCE):
        for id, at, *whose, cost in known.filter(
            request_id__in=ids[first : first + IDS_AT_ONCE]
        ).values_list("request_id", "at", "lane", "tenant", "application", "cost"):
            served[tuple(whose)] += (cost if at < since else 0.0) - charged[id]
    return [(*whose, units) for whose, units in served.items() if units]


def read_ended(ids: Sequence[str], at: datetime) -> dict[str, UsageRow]:
    """The records of these requests, where they are those of their own gateways."""
    known = UsageRow.objects.filter(at__gt=at - LONGEST_KNOWN).exclude(
        throttle_reason=TAKEN_FOR_DEAD
    )
    return {
        row.request_id: row
        for first in range(0, len(ids), IDS_AT_ONCE)
        for row in known.filter(request_id__in=ids[first : first + IDS_AT_ONCE])
    }


def newest_correction() -> int:
    """0 when there is none."""
    return Correction.objects.aggregate(newest=Max("id"))["newest"] or 0


def _sustained(snapshot: PolicySnapshot, at: datetime) -> Iterator[Used]:
    running: dict[str, dict[Window, float]] = {}
    for account, start, end, used in BudgetWindow.objects.filter(window_end__gt=at).values_list(
        "account", "window_start", "window_end", "used"
    ):
        running.setdefault(account, {})[Window(start, end)] = used
    for tenant, budgets in budgets_by_tenant(snapshot).items():
        for policy in budgets.values():
            if policy.period is not None and policy.account in running:
                window = window_at(policy.period, policy.timezone, at)
                known = running[policy.account]
                simple = list(known) == [window]
                used = known[window] if simple else _recount(tenant, policy, window)
                yield Used(tenant, policy, used)


def _recount(tenant: str, policy: BudgetPolicy, window: Window) -> float:
    """Its period or zone was changed while a window ran: the records know what counts in it."""
    rows = UsageRow.objects.filter(tenant=tenant, at__gte=window.start, at__lt=window.end)
    costs = rows.values_list("accounts", "cost").iterator(chunk_size=2000)
    used = sum(cost for accounts, cost in costs if policy.account in accounts)
    entries = Correction.objects.filter(
        account=policy.account, counter="", at__gte=window.start, at__lt=window.end
    )
    return max(0.0, used + sum(entries.values_list("units", flat=True)))


def _recent(snapshot: PolicySnapshot, at: datetime) -> Iterator[PastUse]:
    bursts = _bursts_by_owner(snapshot)
    reach_s = max((_refilled_s(b) for owned in bursts.values() for b in owned), default=0.0)
    since = at - timedelta(seconds=min(max(RATES_S, reach_s), LONGEST_S))
    rows = UsageRow.objects.filter(at__gte=since).exclude(finish_reason__in=NOT_TAKEN)
    for then, tenant, application, key, prompt, completion, cost in rows.values_list(
        "at", "tenant", "application", "key", "prompt_tokens", "completion_tokens", "cost"
    ).iterator(chunk_size=2000):
        age_s = (at - then).total_seconds()
        owners = (f"tenant:{tenant}", f"application:{tenant}/{application}", f"key:{key}")
        taken = tuple(burst for owner in owners for burst in bursts.get(owner, ()))
        yield PastUse(age_s, tenant, prompt + completion, cost, taken)


def _bursts_by_owner(snapshot: PolicySnapshot) -> dict[str, list[BudgetPolicy]]:
    found: defaultdict[str, list[BudgetPolicy]] = defaultdict(list)
    for policy in budget_index(snapshot).values():
        if policy.kind == "burst":
            found[policy.account.removesuffix(f"/{policy.name}")].append(policy)
    return found


def _refilled_s(policy: BudgetPolicy) -> float:
    """How long ago a use can still be felt, had the bucket been empty then."""
    rate = policy.refill_per_second
    return LONGEST_S if rate <= 0 else policy.cost / rate
