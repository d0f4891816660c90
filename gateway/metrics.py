"""Every Prometheus metric of the gateway, listed once.

Labels are bounded: a tenant past the first MAX_TENANTS counts as `other`, until one that policy no
longer has gives up its place; and no label holds anything that a caller can choose freely.
"""

from __future__ import annotations

from collections.abc import Container
from functools import lru_cache

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
    generate_latest,
)

MAX_TENANTS = 1000
SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)

disable_created_metrics()  # type: ignore[no-untyped-call]  # a second series for each, which nobody asks for
registry = CollectorRegistry()

requests = Counter(
    "fairlane_requests",
    "Requests that passed the key check, by how they ended.",
    ["tenant", "model", "lane", "outcome"],
    registry=registry,
)
tokens = Counter(
    "fairlane_tokens",
    "Tokens settled, by kind (prompt, cached, completion).",
    ["tenant", "model", "kind"],
    registry=registry,
)
service_units = Counter(
    "fairlane_service_units", "Service settled.", ["tenant", "model", "lane"], registry=registry
)
queue_seconds = Histogram(
    "fairlane_queue_seconds",
    "Time between admission and a place on an engine.",
    ["model", "lane"],
    buckets=SECONDS,
    registry=registry,
)
ttft_seconds = Histogram(
    "fairlane_ttft_seconds",
    "Time from arrival to the first content sent to the caller.",
    ["model", "lane"],
    buckets=SECONDS,
    registry=registry,
)
refusals = Counter(
    "fairlane_refusals",
    "Requests that a limit refused, by the limit; `budget:NAME` is a budget.",
    ["tenant", "reason"],
    registry=registry,
)
unknown_keys = Counter(
    "fairlane_refused_keys", "Requests refused at the key check.", registry=registry
)
policy_revision = Gauge(
    "fairlane_policy_revision", "The policy revision in force here.", registry=registry
)
policy_failures = Counter(
    "fairlane_policy_load_failures",
    "Polls of the policy that failed; the last good snapshot stays in force.",
    registry=registry,
)
loop_lag_seconds = Histogram(
    "fairlane_loop_lag_seconds",
    "How late the event loop ran a timer.",
    buckets=(0.001, 0.0025, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 1),
    registry=registry,
)
endpoint_up = Gauge(
    "fairlane_endpoint_up",
    "1 while an engine endpoint is usable.",
    ["model", "url"],
    registry=registry,
)

# Of this moment: filled in when they are asked for, by `gateway.gauges`.


def gauge(name: str, told: str, *labels: str) -> Gauge:
    return Gauge(f"fairlane_{name}", told, labels, registry=registry)


endpoint_running = gauge("endpoint_running", "Requests running there.", "model", "url")
endpoint_max_running = gauge("endpoint_max_running", "That may run there at once.", "model", "url")
endpoint_load = gauge("endpoint_load_tokens", "Tokens of what runs there.", "model", "url")
endpoint_max_load = gauge("endpoint_max_load_tokens", "That may be there.", "model", "url")
lane_running = gauge("lane_running", "Requests of the lane that run.", "model", "lane")
lane_queued = gauge("lane_queued", "Requests of the lane that wait.", "model", "lane")
lane_oldest = gauge("lane_oldest_wait_seconds", "Of who waits longest.", "model", "lane")
lane_reserved = gauge("lane_reserved_share", "What policy reserves, 0..1.", "lane")
tenant_running = gauge("tenant_running", "Its requests that run.", "tenant")
tenant_queued = gauge("tenant_queued", "Its requests that wait.", "tenant")
debt = gauge("fairness_debt_units", "Above zero: is owed service.", "tenant", "model", "lane")
bound = gauge("fairness_bound_units", "That no debt of a backlogged tenant passes.", "model")
budget_used = gauge("budget_used_ratio", "Used and held, of the limit, 0..1.", "tenant", "budget")
ledger_behind = gauge("ledger_behind_bytes", "Of the journal that wait for the database.")
ledger_failing = gauge("ledger_failing_seconds", "For how long the database takes nothing.")
ledger_differences = gauge("ledger_differences", "Counters that differ from the ledger.")
journal_unwritten = gauge("journal_unwritten_bytes", "That the disk does not take.")
state = gauge("state", "1 for where counters and queues are now.", "state")

OTHER = "other"
_tenants: set[str] = set()


def tenant_label(name: str) -> str:
    if name in _tenants:
        return name
    if len(_tenants) >= MAX_TENANTS:
        return OTHER
    _tenants.add(name)
    return name


@lru_cache(maxsize=4096)
def ended(tenant: str, model: str, lane: str, outcome: str) -> Counter:
    """A child per label set, looked up once: `labels()` costs more than the increment."""
    return requests.labels(tenant_label(tenant), model, lane, outcome)


@lru_cache(maxsize=4096)
def refused(tenant: str, reason: str) -> Counter:
    """`reason` as in a usage record: a limit, or the account of a budget."""
    _, colon, account = reason.partition(":")
    label = f"budget:{account.rpartition('/')[2]}" if colon else reason
    return refusals.labels(tenant_label(tenant), label)


@lru_cache(maxsize=4096)
def token_counters(tenant: str, model: str) -> tuple[Counter, Counter, Counter]:
    label = tenant_label(tenant)
    return (
        tokens.labels(label, model, "prompt"),
        tokens.labels(label, model, "cached"),
        tokens.labels(label, model, "completion"),
    )


@lru_cache(maxsize=4096)
def units(tenant: str, model: str, lane: str) -> Counter:
    return service_units.labels(tenant_label(tenant), model, lane)


@lru_cache(maxsize=4096)
def queue_time(model: str, lane: str) -> Histogram:
    return queue_seconds.labels(model, lane)


@lru_cache(maxsize=4096)
def ttft(model: str, lane: str) -> Histogram:
    return ttft_seconds.labels(model, lane)


def keep_tenants(known: Container[str]) -> None:
    """Series of tenants that policy has no more leave with it, and their places go to others. A
    call of theirs that still runs brings one back until the next change of policy."""
    gone = {name for name in _tenants if name not in known}
    if not gone:
        return
    _tenants.difference_update(gone)
    for counter in (requests, tokens, service_units, refusals):
        for labels in [s.labels for family in counter.collect() for s in family.samples]:
            if labels["tenant"] in gone:
                counter.remove(*labels.values())
    for children in (ended, refused, token_counters, units):
        children.cache_clear()


def exposition() -> bytes:
    return generate_latest(registry)
