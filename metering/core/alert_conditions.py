"""Which conditions of alerts hold, from what was seen: subject -> message.

1. Live conditions must hold at both ends of their time, in the same gateway; what it did not see
   twice is not told.
2. None is not "no": it cannot be told at this moment, and an open alert stays open.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

Found = dict[str, str]
Sample = Mapping[str, Any]

FEWEST_REQUESTS = 20
WORKS = ("local", "shared")  # what a sample's `state` says while all is well
MOST = 50  # of one kind at once; the first ones tell enough


@dataclass(frozen=True, slots=True)
class Pair:
    """One gateway's live state now and some time before; `earlier` None: it is younger."""

    now: Sample
    earlier: Sample | None


@dataclass(frozen=True, slots=True)
class BudgetUse:
    account: str
    used: float
    limit: float
    ends: str  # in UTC, as metering.core.prose finds it
    only_alerts: bool  # on_exhausted: alert
    refused: int = 0  # calls that no longer fitted, told where it is nearly used up

    @property
    def is_used_up(self) -> bool:
        """All of it is used, or it refuses: what a call may cost is held before it runs, so a
        budget that refuses ends a little below its limit."""
        return self.used >= self.limit or self.refused > 0


class Share(Protocol):
    """Of `metering.selectors.Share`, what is looked at."""

    @property
    def name(self) -> str: ...
    @property
    def requests(self) -> int: ...
    @property
    def throttled(self) -> int: ...
    @property
    def throttle_rate(self) -> float: ...
    @property
    def queue_p95_ms(self) -> float | None: ...


def budgets_past(uses: Iterable[BudgetUse], threshold: float, with_alerting: bool) -> Found:
    """`with_alerting`: also those with on_exhausted: alert, of which the gateway tells itself once
    they are used up. Without it a budget also counts that is used up before its threshold."""
    return {
        use.account: _told(use)
        for use in uses
        if use.limit > 0
        and (use.used >= threshold * use.limit or (use.is_used_up and not with_alerting))
        and (with_alerting or not use.only_alerts)
    }


def _told(use: BudgetUse) -> str:
    """Rounded down: 100% is all of it."""
    part = int(100 * use.used / use.limit)
    refused = f" and refused {use.refused:,} calls" if use.refused else ""
    told = f"{use.account} has used {part}% of its {use.limit:,.12g} units{refused}"
    return f"{told}; its window ends at {use.ends}"


def throttled(shares: Iterable[Share], threshold: float, minutes: int) -> Found:
    return {
        share.name: f"{share.name}: {share.throttled:,} of {share.requests:,} requests "
        f"({share.throttle_rate:.0%}) were throttled within {minutes} minutes"
        for share in shares
        if share.requests >= FEWEST_REQUESTS and share.throttle_rate >= threshold
    }


def slow_lanes(
    shares: Iterable[Share], longest_s: Mapping[str, float], threshold: float, minutes: int
) -> Found:
    """`longest_s`: each lane's max_queue_seconds."""
    found = {}
    for share in shares:
        limit, wait_ms = longest_s.get(share.name), share.queue_p95_ms
        if limit is None or wait_ms is None or share.requests < FEWEST_REQUESTS:
            continue
        if wait_ms / 1000 >= threshold * limit:
            found[share.name] = (
                f"lane {share.name}: p95 queue time {wait_ms / 1000:,.1f} s over {minutes} "
                f"minutes; requests are given up after {limit:,.6g} s"
            )
    return found


def in_debt(pairs: Iterable[Pair], threshold: float) -> Found:
    found = {}
    for pair in pairs:
        before = dict(_debts(pair.earlier)) if pair.earlier else {}
        for place, (debt, bound) in _debts(pair.now):
            limit = threshold * bound
            was = before.get(place, (0.0, 0.0))[0]
            if bound > 0 and abs(debt) > limit and abs(was) > limit:
                pool, lane, tenant = place
                found[f"{tenant} in {lane} of {pool}"] = (
                    f"{tenant} {'is owed' if debt > 0 else 'is ahead by'} {abs(debt):,.0f} units "
                    f"in lane {lane} of {pool}; the bound is {bound:,.0f}"
                )
    return found


def _debts(sample: Sample) -> Iterator[tuple[tuple[str, str, str], tuple[float, float]]]:
    for pool, state in sample.get("pools", {}).items():
        bound = state.get("bound_units") or 0.0
        for lane, of_lane in state.get("lanes", {}).items():
            for tenant, standing in of_lane.get("tenants", {}).items():
                if standing.get("debt") is not None:
                    yield (pool, lane, tenant), (standing["debt"], bound)


def starved(pairs: Iterable[Pair], seconds: float) -> Found:
    found = {}
    for pair in pairs:
        if pair.earlier is None:
            continue
        for pool, state in pair.now.get("pools", {}).items():
            before = pair.earlier.get("pools", {}).get(pool, {}).get("lanes", {})
            lanes = state.get("lanes", {})
            still = {name for name, lane in lanes.items() if _is_still(lane, before.get(name))}
            if not lanes.keys() - still:
                continue  # nothing in the pool is served: that is the endpoints' alert
            for name in sorted(still):
                wait_s = lanes[name].get("oldest_wait_s") or 0.0
                if lanes[name].get("queued") and wait_s >= seconds:
                    found[f"{name} of {pool}"] = (
                        f"lane {name} of {pool}: {lanes[name]['queued']:,} wait, the oldest for "
                        f"{wait_s:,.0f} s, and none is served, while other lanes are"
                    )
    return found


def _is_still(lane: Sample, before: Sample | None) -> bool:
    """Nothing of it runs, and nothing was served in between."""
    if before is None or lane.get("running") or before.get("running"):
        return False
    return bool(lane.get("served") == before.get("served"))


def endpoints_down(pairs: Iterable[Pair], wanted: Mapping[str, Iterable[str]]) -> Found:
    """`wanted`: pool -> addresses that policy has and that are not draining."""
    found = {}
    for pair in pairs:
        for pool, urls in wanted.items():
            now, before = _endpoints(pair.now, pool), _endpoints(pair.earlier or {}, pool)
            for url in urls:
                if _down(now.get(url)) and _down(before.get(url)):
                    fault = now[url].get("fault")
                    why = f" ({fault})" if fault else ""
                    found[f"{url} of {pool}"] = f"endpoint {url} of {pool} takes no requests{why}"
    return found


def _endpoints(sample: Sample, pool: str) -> Mapping[str, Any]:
    found: Mapping[str, Any] = sample.get("pools", {}).get(pool, {}).get("endpoints", {})
    return found


def _down(endpoint: Mapping[str, Any] | None) -> bool:
    return endpoint is not None and endpoint.get("available") is False


def state_lost(pairs: Iterable[Pair]) -> Found:
    return {
        str(pair.now.get("gateway", "?")): f"gateway {pair.now.get('gateway', '?')} cannot reach "
        f"the shared state ({pair.now['state']})"
        for pair in pairs
        if pair.now.get("state") and pair.now["state"] not in WORKS
    }


def first(found: Found) -> Found:
    return dict(list(found.items())[:MOST])
