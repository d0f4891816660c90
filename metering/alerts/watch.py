"""Raises and resolves alerts by the rules in force; Celery beat calls it every few seconds.

Bounded: two samples a gateway, roll-ups of some minutes, one row for each running budget window.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property

from metering import alerts, budget_use, selectors
from metering.alerts.rules import rules
from metering.core import alert_conditions as conditions
from metering.core.alert_conditions import BudgetUse, Found, Pair
from metering.core.alert_kinds import Rule
from metering.models import Alert, GatewaySample
from metering.restore import budget_index
from tenants.core.snapshot import PolicySnapshot
from tenants.selectors import load_snapshot

YOUNG = timedelta(seconds=10)  # an older sample is of a gateway that is gone
SLACK = timedelta(seconds=10)  # how much earlier than asked for the earlier sample may be
LONGEST_DEBT_S = 10.0  # a debt that is corrected within that was none


@dataclass
class Seen:
    """What rules look at, read once and only when one asks."""

    at: datetime
    _pairs: dict[float, list[Pair]] = field(default_factory=dict)

    @cached_property
    def policy(self) -> PolicySnapshot:
        return load_snapshot(self.at)

    def pairs(self, seconds: float) -> list[Pair]:
        """Each running gateway now and that many seconds before."""
        if seconds not in self._pairs:
            self._pairs[seconds] = list(self._read_pairs(timedelta(seconds=seconds)))
        return self._pairs[seconds]

    def _read_pairs(self, span: timedelta) -> list[Pair]:
        rows = GatewaySample.objects.filter(at__gt=self.at - YOUNG - span - SLACK, at__lte=self.at)
        moments: dict[str, list[tuple[datetime, int]]] = {}
        for gateway, at, number in rows.values_list("gateway", "at", "id"):
            moments.setdefault(gateway, []).append((at, number))
        chosen = [
            (newest[1], max(before)[1] if before else None)
            for seen in moments.values()
            if (newest := max(seen))[0] > self.at - YOUNG
            for before in [[each for each in seen if each[0] <= newest[0] - span]]
        ]
        wanted = [number for pair in chosen for number in pair if number is not None]
        states = dict(rows.model._default_manager.filter(id__in=wanted).values_list("id", "state"))
        return [
            Pair(states[now], states.get(earlier) if earlier else None)
            for now, earlier in chosen
            if now in states
        ]

    def shares(self, by: selectors.Dimension, minutes: int) -> list[selectors.Share]:
        return selectors.breakdown(by, self.at - timedelta(minutes=minutes), self.at)

    @cached_property
    def budgets(self) -> list[BudgetUse]:
        """Every sustained budget that was used in its running window."""
        return budget_use.uses(budget_index(self.policy), self.at)

    @cached_property
    def rules(self) -> Mapping[str, Rule]:
        return rules()


Check = Callable[[Seen, Rule], Found | None]


def _nearly(seen: Seen, rule: Rule) -> Found:
    """Without those that are told as used up: one budget is one alert."""
    found = conditions.budgets_past(seen.budgets, rule.threshold, with_alerting=True)
    gone = seen.rules["budget_exhausted"]
    told = _used_up(seen, gone) if gone.enabled else {}
    return {account: text for account, text in found.items() if account not in told}


def _used_up(seen: Seen, rule: Rule) -> Found:
    return conditions.budgets_past(seen.budgets, rule.threshold, with_alerting=False)


def _throttled(seen: Seen, rule: Rule) -> Found:
    shares = seen.shares("tenant", rule.minutes)
    return conditions.throttled(shares, rule.threshold, rule.minutes)


def _slow_lanes(seen: Seen, rule: Rule) -> Found:
    longest = {lane.name: lane.max_queue_seconds for lane in seen.policy.lanes}
    shares = seen.shares("lane", rule.minutes)
    return conditions.slow_lanes(shares, longest, rule.threshold, rule.minutes)


def _in_debt(seen: Seen, rule: Rule) -> Found | None:
    pairs = seen.pairs(LONGEST_DEBT_S)
    return conditions.in_debt(pairs, rule.threshold) if pairs else None


def _starved(seen: Seen, rule: Rule) -> Found | None:
    pairs = seen.pairs(rule.threshold)
    return conditions.starved(pairs, rule.threshold) if pairs else None


def _endpoints_down(seen: Seen, rule: Rule) -> Found | None:
    pairs = seen.pairs(rule.threshold)
    wanted = {
        pool.model: [endpoint.url for endpoint in pool.endpoints if not endpoint.drain]
        for pool in seen.policy.pools.values()
    }
    return conditions.endpoints_down(pairs, wanted) if pairs else None


def _state_lost(seen: Seen, rule: Rule) -> Found | None:
    pairs = seen.pairs(LONGEST_DEBT_S)
    return conditions.state_lost(pairs) if pairs else None


def _no_gateway(seen: Seen, rule: Rule) -> Found:
    """Where none ever was, none is missing; where one is, it stays so until one is heard of."""
    since = seen.at - timedelta(seconds=rule.threshold)
    if GatewaySample.objects.filter(at__gt=since, at__lte=seen.at).exists():
        return {}
    known = Alert.objects.filter(kind="no_gateway", resolved_at=None)
    if not GatewaySample.objects.exists() and not known.exists():
        return {}
    return {"gateways": f"no gateway has told its state for {rule.threshold:g} s or more"}


CHECKS: Mapping[str, Check] = {
    "budget_near": _nearly,
    "budget_exhausted": _used_up,
    "throttle_rate": _throttled,
    "queue_p95": _slow_lanes,
    "fairness_debt": _in_debt,
    "starved_lane": _starved,
    "endpoint_down": _endpoints_down,
    "no_gateway": _no_gateway,
    "state_lost": _state_lost,
}


def watch(at: datetime) -> int:
    """Returns how many conditions hold."""
    seen, holding = Seen(at), 0
    for name, rule in seen.rules.items():
        check = CHECKS.get(name)
        if check is None:
            continue
        if not rule.enabled:
            alerts.resolve_others(name, (), at)
            continue
        found = check(seen, rule)
        if found is None:
            continue
        found = conditions.first(found)
        alerts.note_all(name, found, at)
        alerts.resolve_others(name, found, at, timedelta(seconds=rule.kind.quiet_s))
        holding += len(found)
    return holding
