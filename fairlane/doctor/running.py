"""What runs: the policy in force, gateways, engines, the worker, the ledger, alerts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from django.db.models import Max, Min

from fairlane.doctor.finding import Finding, fail, ok, warn
from metering.alerts.rules import rules
from metering.models import AlertDelivery, GatewayCheck, GatewaySample, LiveMinute, TouchedMinute
from metering.selectors import Heard, heard, latest_samples, open_alerts
from tenants.core.snapshot import TenantPolicy
from tenants.core.stale import refused_today
from tenants.selectors import current_document, current_revision, load_snapshot

NAMED = 5  # of many alike, so many are named
BEHIND = timedelta(minutes=3)  # a worker that is busy is less far behind
STARTED = timedelta(minutes=2)
APART_S = 2.0
HEARD_S = 30.0  # a gateway tells of itself once a second; a busy one later
SILENT_S = 5.0


def policy() -> Iterator[Finding]:
    snapshot = load_snapshot()
    pools, tenants = snapshot.pools.values(), snapshot.tenants.values()
    if not pools:
        yield fail(
            "policy",
            "no pool: nothing can be served",
            "Apply a policy with one: manage.py policy apply FILE, or Pools in the console.",
        )
    else:
        yield ok(
            "policy",
            f"revision {snapshot.revision}, pools: {len(pools)}, tenants: {len(tenants)}",
        )
    for issue in refused_today(current_document()):
        yield fail(
            "policy",
            f"{issue}; an older version took it",
            "Mend it (manage.py policy export, apply): no other change is taken before.",
        )
    for name in (pool.model for pool in pools if not pool.endpoints):
        yield fail("policy", f"pool {name} has no endpoint")
    loose = [t.name for t in tenants if t.enabled and _is_unbounded(t)]
    if loose:
        yield warn(
            "policy",
            f"no bound on requests running, or none on tokens, for {_names(loose)}",
            "Give their tier max_running, and tokens_per_minute or a budget.",
        )


def _is_unbounded(tenant: TenantPolicy) -> bool:
    limits = tenant.limits
    counted = limits.tokens_per_minute is not None or bool(tenant.budgets)
    return limits.max_running is None or not counted


def gateways() -> Iterator[Finding]:
    samples = latest_samples(max_age_s=HEARD_S)
    if not samples:
        last = GatewaySample.objects.aggregate(at=Max("at"))["at"]
        since = f"since {last:%Y-%m-%d %H:%M:%S} UTC" if last else "so far"
        yield fail("gateways", f"none has told of itself {since}", "Start `manage.py serve`.")
        return
    known = heard(HEARD_S)
    silent = [s["gateway"] for s in samples if _silence(known.get(s["gateway"])) > SILENT_S]
    names = [s["gateway"] for s in samples if s["gateway"] not in silent]
    told = f"{len(names)} at work: {_names(names)}" if names else "none at work"
    if silent:
        told += f"; silent, so stopped or hung: {_names([_named(n, known[n]) for n in silent])}"
    yield (ok if names else fail)("gateways", told)
    current = current_revision()
    for sample in samples:
        name = sample["gateway"]
        if sample["revision"] < current:
            found = f"{name} works by revision {sample['revision']}; {current} is in force"
            yield fail("gateways", found, "Look at its log: it cannot load the policy.")
    yield from _clocks(known)


def _named(name: str, found: Heard) -> str:
    """One that was stopped just now is still told."""
    return f"{name} (for {_silence(found):.0f} s)"


def _silence(found: Heard | None) -> float:
    return (datetime.now(UTC) - found.last).total_seconds() if found else 0.0


def _clocks(known: Mapping[str, Heard]) -> Iterator[Finding]:
    for name, found in sorted(known.items()):
        apart = found.ahead_s
        if abs(apart) > APART_S:
            way = "ahead of" if apart > 0 else "behind"
            told = f"the clock of {name} is {abs(apart):.1f} s {way} the database's"
            yield fail("gateways", told, "Set both by NTP: budgets' windows hang on them.")


def engines() -> Iterator[Finding]:
    seen: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for sample in latest_samples(max_age_s=HEARD_S):
        for pool, told in sample["pools"].items():
            for url, end in told["endpoints"].items():
                seen.setdefault((pool, url), []).append(end)
    found = [
        *(f for place, ends in sorted(seen.items()) for f in _endpoint(place, ends)),
        *_untold(set(seen)),
        *_mixed(seen),
    ]
    yield from found
    if seen and not found:
        yield ok("engines", f"{len(seen)} endpoints answer")


def _drained() -> set[tuple[str, str]]:
    pools = load_snapshot().pools.values()
    return {(pool.model, end.url) for pool in pools for end in pool.endpoints if end.drain}


def _untold(seen: set[tuple[str, str]]) -> Iterator[Finding]:
    """Endpoints of the policy that no gateway tells of: none runs, or the shared state is lost."""
    pools = load_snapshot().pools.values()
    missing = sorted({(pool.model, end.url) for pool in pools for end in pool.endpoints} - seen)
    if missing:
        names = _names([f"{url} of {pool}" for pool, url in missing])
        yield warn("engines", f"no gateway tells of {names}", "See gateways and state above.")


def _endpoint(place: tuple[str, str], ends: list[dict[str, Any]]) -> Iterator[Finding]:
    """`ends`: as each gateway sees it."""
    name = f"{place[1]} of {place[0]}"
    away = sum(not end["available"] for end in ends)
    if away and place not in _drained():
        yield fail(
            "engines",
            f"{name} takes nothing, as {away} of {len(ends)} gateways see it",
            "Look at the engine and the way to it.",
        )
    if any(end["available"] and end.get("auto") and not end.get("engine") for end in ends):
        yield warn(
            "engines",
            f"{name} tells no load: `capacity: auto` stays where it began",
            "Let it serve /metrics (docs/engines.md), or set its limits.",
        )
    if any(end.get("priority_ignored") for end in ends):
        yield warn(
            "engines",
            f"{name} ignores priority: lanes hold in the gateway's queue only",
            "Start vLLM with --scheduling-policy priority (docs/engines.md).",
        )
    if any(end.get("simulated") for end in ends):
        yield warn("engines", f"{name} is a simulated engine")


def _mixed(seen: dict[tuple[str, str], list[dict[str, Any]]]) -> Iterator[Finding]:
    prints: dict[str, set[str]] = {}
    for (pool, _), ends in seen.items():
        prints.setdefault(pool, set()).update(filter(None, (e.get("fingerprint") for e in ends)))
    for pool in sorted(pool for pool, found in prints.items() if len(found) > 1):
        found = f"the endpoints of {pool} differ in version or model"
        yield warn("engines", found, "Fine while an upgrade is under way.")


def worker() -> Iterator[Finding]:
    now = datetime.now(UTC)
    oldest = TouchedMinute.objects.aggregate(at=Min("minute"))["at"]
    noted = LiveMinute.objects.aggregate(at=Max("start"))["at"]
    first = GatewaySample.objects.aggregate(at=Min("at"))["at"]
    if first is None or now - first < STARTED:
        yield ok("worker", "no gateway has run for long enough to tell")
    elif noted is None or now - noted > BEHIND:
        since = f"since {noted:%Y-%m-%d %H:%M} UTC" if noted else "so far"
        yield fail(
            "worker",
            f"worker or beat is not at work: no live state was kept {since}",
            "Start `manage.py serve --role console`, or look at the worker's log and its broker.",
        )
    elif oldest is not None and now - oldest > BEHIND:
        found = f"roll-ups are behind: usage of {oldest:%Y-%m-%d %H:%M} UTC waits"
        yield warn("worker", found, "It catches up by itself; if it does not, add a worker.")
    else:
        yield ok("worker", "worker and beat are at work")


def ledger() -> Iterator[Finding]:
    recent = GatewayCheck.objects.filter(at__gt=datetime.now(UTC) - BEHIND)
    differing = [
        f"{check.gateway}: {found['account']}"
        for check in recent.order_by("gateway")
        for found in check.differences
    ]
    if differing:
        found = f"live counters differ from the ledger: {_names(differing)}"
        yield fail("ledger", found, "`manage.py usage verify` says by how much.")
    else:
        yield ok("ledger", "live counters equal the ledger")


def alerts() -> Iterator[Finding]:
    failed = AlertDelivery.objects.filter(state="failed").count()
    if failed:
        found = f"{failed} messages could not be delivered"
        yield fail("alerts", found, "Look at Alerts, Destinations in the console.")
    grave = {kind for kind, rule in rules().items() if rule.level == "critical"}
    critical = [alert.subject for alert in open_alerts() if alert.kind in grave]
    if critical:
        yield warn("alerts", f"open and critical: {_names(critical)}", "Look at Alerts.")
    if not failed and not critical:
        yield ok("alerts", "none open that is critical, none undelivered")


def _names(names: list[str]) -> str:
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more
