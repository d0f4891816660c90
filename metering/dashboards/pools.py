"""Pages of lanes and pools: policy beside what the gateways tell of this moment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone

from metering import selectors
from metering.dashboards import errors, live, state
from tenants import selectors as policy
from tenants.core.compile import engine_priority
from tenants.core.document import Endpoint, Lane, Pool


@dataclass(frozen=True, slots=True)
class LaneRow:
    lane: Lane
    engine_priority: int
    queues: list[dict[str, Any]]  # of each pool that a gateway tells of

    @property
    def open_share(self) -> float:
        """What it may take beyond its reserved share, up to its ceiling, where nobody waits."""
        return max(0.0, self.lane.ceiling - self.lane.reserved_share)

    @property
    def queued(self) -> int:
        return sum(queue["queued"] for queue in self.queues)


def lanes(request: HttpRequest) -> HttpResponse:
    found = sorted(policy.current_document().lanes, key=lambda lane: lane.rank)
    now = live.combine(selectors.latest_samples())
    reserved = sum(lane.reserved_share for lane in found)
    context = {
        "rows": [LaneRow(lane, engine_priority(lane), queues_of(lane.name, now)) for lane in found],
        "reserved": reserved,
        "free": max(0.0, 1 - reserved),
        "live": now,
    }
    return render(request, "tenants/lanes.html", context)


def queues_of(lane: str, now: live.Live) -> list[dict[str, Any]]:
    return [
        {**state, "pool": pool["model"]}
        for pool in now.pools
        for state in pool["lanes"]
        if state["name"] == lane
    ]


@dataclass(frozen=True, slots=True)
class EndpointRow:
    """`state` is None where no gateway tells of it."""

    endpoint: Endpoint
    state: dict[str, Any] | None


def pools(request: HttpRequest) -> HttpResponse:
    now = live.combine(selectors.latest_samples())
    known = {pool["model"]: pool for pool in now.pools}
    rows = [
        (pool, *rows_of(pool, known.get(pool.model))) for pool in policy.current_document().pools
    ]
    context = {
        "rows": rows,
        "live": now,
        "states": state.seen_by(now.gateways),
        "at": timezone.now(),
        "errors": errors.rows(),
    }
    return render(request, "metering/pools.html", context)


def rows_of(pool: Pool, told: dict[str, Any] | None) -> tuple[list[EndpointRow], list[Any]]:
    """Its endpoints as in the policy, and its queues."""
    states = {each["url"]: each for each in told["endpoints"]} if told else {}
    endpoints = [EndpointRow(each, states.get(each.url)) for each in pool.endpoints]
    return endpoints, told["lanes"] if told else []
