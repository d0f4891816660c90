"""Who got what of the capacity that others waited for, in service units.

1. Contended service is what a pool served to those who waited, while they waited.
2. A tenant's entitled part of it is what its weight implies among those who waited in its lane in
   the same step: the house's meaning of entitlement.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from metering.dashboards.watching import Watch
from metering.live_history import Past


@dataclass(slots=True)
class Fairness:
    got: float = 0.0
    entitled: float = 0.0
    waited_s: float = 0.0  # request-seconds in the queue


def fairness(watch: Watch) -> dict[str, Fairness]:
    """By tenant, over the whole range."""
    lanes: dict[tuple[int, str, str], dict[str, Past]] = defaultdict(dict)
    for (step, (pool, lane, tenant)), each in watch.queues.items():
        if each.waiting_s:
            lanes[step, pool, lane][tenant] = each
    found: dict[str, Fairness] = defaultdict(Fairness)
    for waiting in lanes.values():
        _add(waiting, found)
    return dict(found)


def _add(waiting: Mapping[str, Past], found: dict[str, Fairness]) -> None:
    for name, each in waiting.items():
        found[name].waited_s += each.queued_s
    if len(waiting) < 2:
        return  # whoever waits alone is entitled to everything
    claims = {name: each.weight * each.waiting_s for name, each in waiting.items()}
    given = {name: _while_waiting(each) for name, each in waiting.items()}
    whole, served = sum(claims.values()), sum(given.values())
    for name in waiting:
        found[name].got += given[name]
        found[name].entitled += served * claims[name] / whole if whole else 0.0


def _while_waiting(each: Past) -> float:
    part = each.waiting_s / each.observed_s if each.observed_s else 0.0
    return max(0.0, each.served) * part
