"""What sustained budgets have used in their running windows, and which of them are used up.

One query for all of them, bounded by the number of running windows; a second one, of roll-ups, only
where a budget that refuses is nearly used up.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime

from metering.core.alert_conditions import BudgetUse
from metering.core.windows import window_at
from metering.models import BudgetWindow
from metering.reading import Reading
from tenants.core.snapshot import BudgetPolicy

NEAR = 0.9  # a budget used so far, that refuses, is used up


def uses(budgets: Mapping[str, BudgetPolicy], at: datetime) -> list[BudgetUse]:
    """Of each budget (by its account) that was used in its running window."""
    running = BudgetWindow.objects.filter(window_end__gt=at)
    rows = running.values_list("account", "window_start", "used").iterator(2000)
    used = {(account, start): amount for account, start, amount in rows if account in budgets}
    found, near = list[BudgetUse](), dict[str, datetime]()
    for account, policy in budgets.items():
        if policy.period is None:
            continue
        window = window_at(policy.period, policy.timezone, at)
        if amount := used.get((account, window.start)):
            ends = f"{window.end.astimezone(UTC):%Y-%m-%dT%H:%MZ}"
            alerting = policy.on_exhausted == "alert"
            found.append(BudgetUse(account, amount, policy.cost, ends, alerting))
            if policy.on_exhausted == "reject" and amount >= NEAR * policy.cost:
                near[account] = window.start
    refused = _refused(near, at)
    return [replace(use, refused=refused[use.account]) for use in found]


def _refused(since: Mapping[str, datetime], at: datetime) -> Counter[str]:
    """How many calls each of these budgets refused since its window began; out of roll-ups."""
    found = Counter[str]()
    if not since:
        return found
    starts = sorted(set(since.values()))
    series = Reading(starts[0], at).series([*starts, at], (), tallies=("throttled",))
    for (place, _), total in series.items():
        for reason, number in total.throttled.items():
            if reason in since and place >= bisect_left(starts, since[reason]):
                found[reason] += number
    return found
