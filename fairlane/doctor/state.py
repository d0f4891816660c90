"""Where counters and queues live, whether each gateway reaches them, what outlives their loss."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from django.conf import settings
from django.db.models import Max

from fairlane.doctor.finding import Finding, fail, ok, warn
from metering.core.alert_conditions import WORKS
from metering.selectors import latest_samples
from scheduling.models import PoolCounters

HEARD_S = 10.0
KEPT = timedelta(minutes=1)  # they are kept every few seconds; of very many tenants less often


def state() -> Iterator[Finding]:
    samples = latest_samples(max_age_s=HEARD_S)
    lost = [sample for sample in samples if sample["state"] not in WORKS]
    for sample in lost:
        yield fail("state", _lost(sample), "Look at Redis, and at the way to it.")
    yield from _alone([s["gateway"] for s in samples if s["state"] == "local"])
    if not settings.REDIS_URL:
        yield ok("state", "in the gateway's own process; its journal brings budgets back")
        return
    loss = settings.FAIRLANE_STATE_LOSS
    whole = len(samples) - len(lost)
    if not lost:
        yield ok("state", f"whole, as {whole} gateways see it; when it is lost they {MEANS[loss]}")
    if any(sample["state"] == "shared" and sample["pools"] for sample in samples):
        yield from _kept()


MEANS = {
    "fail-open": "go on with their part (FAIRLANE_STATE_LOSS=fail-open)",
    "fail-closed": "let no call in (FAIRLANE_STATE_LOSS=fail-closed)",
}


def _lost(sample: dict[str, Any]) -> str:
    since, fault = sample.get("state_since"), sample.get("state_fault")
    when = f" since {datetime.fromisoformat(since):%Y-%m-%d %H:%M:%S} UTC" if since else ""
    return f"{sample['gateway']} is {sample['state']}{when}" + (f": {fault}" if fault else "")


def _alone(gateways: list[str]) -> Iterator[Finding]:
    """Each has budgets and queues of its own: limits hold for each, and not for all of them."""
    if settings.REDIS_URL and gateways:
        found = f"{', '.join(gateways)} runs without REDIS_URL, with counters of its own"
        yield fail("state", found, "Start it with the REDIS_URL of the others.")
    elif len(gateways) > 1:
        found = (
            f"{len(gateways)} gateways, each with counters of its own: limits hold for each alone"
        )
        yield fail("state", found, "Set REDIS_URL for all of them, or stop all but one.")


def _kept() -> Iterator[Finding]:
    at = PoolCounters.objects.aggregate(at=Max("at"))["at"]
    if at is None or datetime.now(UTC) - at > KEPT:
        since = f"were kept last at {at:%Y-%m-%d %H:%M:%S} UTC" if at else "were never kept"
        found = f"the scheduler's counters {since}: a Redis that comes back empty begins without"
        yield warn("state", found, "Look at the log of the gateways for a step that fails.")
