"""Every policy that `simulate` can run, by name. The first is the product's own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from scheduling.core.model import SchedulerConfig
from scheduling.simulate.policies.base import Baseline, Cached, Forecast, Policy
from scheduling.simulate.policies.counters import FairServe, LeastCounter
from scheduling.simulate.policies.fairlane import Fairlane
from scheduling.simulate.policies.locality import Deficit, LongestPrefix
from scheduling.simulate.policies.queues import RoundRobin, RpmLimit

QUANTUM = 20_000.0  # service units: about a conversation's prompt
FAIRSERVE_RPM = 30


@dataclass(frozen=True, slots=True)
class Entry:
    """`forecast`: what a request is expected to cost when it is dispatched."""

    name: str
    about: str
    forecast: Forecast
    build: Callable[[SchedulerConfig, Cached], Policy]


def _rpm(per_minute: int) -> Entry:
    return Entry(
        f"rpm-{per_minute}",
        f"first come, first served, with at most {per_minute} requests a minute of each tenant",
        "predicted",
        lambda config, cached: RpmLimit(config, cached, per_minute),
    )


_ENTRIES = (
    Entry("fairlane", "weighted VTC with lift, lanes and prediction: what the gateway does",
          "predicted", lambda config, cached: Fairlane(config)),
    Entry("vtc", "the same, charging output only as it streams", "none",
          lambda config, cached: Fairlane(config)),
    Entry("vtc-oracle", "the same, knowing each output's length beforehand", "oracle",
          lambda config, cached: Fairlane(config)),
    Entry("vtc-local", "the same, with a locality_quantum", "predicted",
          lambda config, cached: Fairlane(config, QUANTUM)),
    Entry("fcfs", "first come, first served", "predicted", Baseline),
    _rpm(5), _rpm(20), _rpm(30),
    Entry("lcf", "least counter first, without the lift", "none", LeastCounter),
    Entry("round-robin", "one request of each tenant in turn", "predicted", RoundRobin),
    Entry("fairserve", f"after FairServe, {FAIRSERVE_RPM} requests a minute while overloaded",
          "predicted", lambda config, cached: FairServe(config, cached, FAIRSERVE_RPM)),
    Entry("dlpm", "after DLPM: longest prefix among tenants with deficit", "none",
          lambda config, cached: Deficit(config, cached, QUANTUM)),
    Entry("longest-prefix", "longest prefix first, fairness ignored", "none", LongestPrefix),
)  # fmt: skip
POLICIES: Mapping[str, Entry] = {entry.name: entry for entry in _ENTRIES}


def entry(name: str) -> Entry | None:
    """The policy of that name; `rpm-N` exists for every N above 0."""
    found = POLICIES.get(name)
    limit = name.removeprefix("rpm-")
    if found is None and limit != name and limit.isdecimal() and int(limit):
        return _rpm(int(limit))
    return found


__all__ = ["POLICIES", "QUANTUM", "Entry", "Policy", "entry"]
