"""Every Prometheus metric of the gateway, listed once.

Labels are bounded: a tenant past the first MAX_TENANTS counts as `other`, until one that policy no
longer has gives up its place; and no label holds anything that a caller can choose freely.
"""

from __future__ import annotations

from collections.abc import Container
from typing import TYPE_CHECKING

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
    generate_latest,
)

from gateway.labelled import LabelledCounter, LabelledHistogram
from metering.core.record import UsageRecord

if TYPE_CHECKING:
    from gateway.run import Run

MAX_TENANTS = 1000
SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)

disable_created_metrics()  # type: ignore[no-untyped-call]  # a second series for each, which nobody asks for
registry = CollectorRegistry()

requests = LabelledCounter(
    "fairlane_requests",
    "Requests that passed the key check, by how they ended.",
    ("tenant", "model", "lane", "outcome"),
    registry,
)
tokens = LabelledCounter(
    "fairlane_tokens",
    "Tokens settled, by kind (prompt, cached, completion).",
    ("tenant", "model", "kind"),
    registry,
)
service_units = LabelledCounter(
    "fairlane_service_units", "Service settled.", ("tenant", "model", "lane"), registry
)
queue_seconds = LabelledHistogram(
    "fairlane_queue_seconds",
    "Time between admission and a place on an engine.",
    ("model", "lane"),
    SECONDS,
    registry,
)
ttft_seconds = LabelledHistogram(
    "fairlane_ttft_seconds",
    "Time from arrival to the first content sent to the caller.",
    ("model", "lane"),
    SECONDS,
    registry,
)
refusals = LabelledCounter(
    "fairlane_refusals",
    "Requests that a limit refused, by the limit; `budget:NAME` is a budget.",
    ("tenant", "reason"),
    registry,
)
unknown_keys = Counter(
    "fairlane_refused_keys", "Requests refused at the key check.", registry=registry
)
policy_failures = Counter(
    "fairlane_policy_load_failures",
    "Polls of the policy that failed; the last good snapshot stays in force.",
    registry=registry,
)
state_rebuilt = Counter(
    "fairlane_state_rebuilt",
    "Keys were missing on Redis, and what is shared was built again.",
    registry=registry,
)
loop_lag_seconds = Histogram(
    "fairlane_loop_lag_seconds",
    "How late the event loop ran a timer.",
    buckets=(0.001, 0.0025, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 1),
    registry=registry,
)

# Of this moment: cleared and filled in when they are asked for, by `gateway.gauges`.
labelled: list[Gauge] = []


def gauge(name: str, told: str, *labels: str) -> Gauge:
    made = Gauge(f"fairlane_{name}", told, labels, registry=registry)
    if labels:
        labelled.append(made)
    return made


policy_revision = gauge("policy_revision", "The policy revision in force here.")
endpoint_up = gauge("endpoint_up", "1 while an engine endpoint is usable.", "model", "url")
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


def count(record: UsageRecord, run: Run) -> None:
    """A call that has ended."""
    tenant, lane = tenant_label(record.tenant), record.lane
    model = record.model if run.plan is not None else "unknown"  # a caller's own text is no label
    requests.of[tenant, model, lane, run.outcome.value] += 1
    if record.throttle_reason:
        refusals.of[tenant, limit_label(record.throttle_reason)] += 1
    if run.place is None:
        return
    tokens.of[tenant, model, "prompt"] += record.prompt_tokens
    tokens.of[tenant, model, "cached"] += record.cached_tokens
    tokens.of[tenant, model, "completion"] += record.completion_tokens
    service_units.of[tenant, model, lane] += record.cost
    queue_seconds.observe((model, lane), record.queue_ms / 1000)
    if record.ttft_ms is not None:
        ttft_seconds.observe((model, lane), record.ttft_ms / 1000)


def limit_label(reason: str) -> str:
    """`reason` as in a usage record: a limit, or the account of a budget."""
    _, colon, account = reason.partition(":")
    return f"budget:{account.rpartition('/')[2]}" if colon else reason


def keep_tenants(known: Container[str]) -> None:
    """Series of tenants that policy has no more leave with it, and their places go to others. A
    call of theirs that still runs brings one back until the next change of policy."""
    gone = {name for name in _tenants if name not in known}
    if not gone:
        return
    _tenants.difference_update(gone)
    for counter in (requests, tokens, service_units, refusals):
        counter.forget(lambda labels: labels[0] in gone)


def exposition() -> bytes:
    return generate_latest(registry)
