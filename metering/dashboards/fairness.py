"""Who got what of the capacity that others waited for, in service units.

1. Contended service is what a lane of a pool served while somebody waited in it.
2. A tenant's entitled part of it is what its weight implies among those active there in the same
   step, up to what it asked for; what one leaves is the others', by weight (`filled`).
3. What somebody asked for is known while it does not wait: it gets it. For the time in which it
   waits it is taken to have asked on at that pace; so who waits all the time has no bound.
"""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from typing import TypeVar

from metering.dashboards.watching import Watch
from metering.live_history import Past

Name = TypeVar("Name")


@dataclass(slots=True)
class Fairness:
    got: float = 0.0
    entitled: float = 0.0
    waited_s: float = 0.0  # request-seconds in the queue


@dataclass(frozen=True, slots=True)
class Claim:
    weight: float
    asked: float  # units; inf: as much as there is


def fairness(watch: Watch) -> dict[str, Fairness]:
    """By tenant, over the whole range."""
    lanes: dict[tuple[int, str, str], dict[str, Past]] = defaultdict(dict)
    for (step, (pool, lane, tenant)), each in watch.queues.items():
        lanes[step, pool, lane][tenant] = each
    found: dict[str, Fairness] = defaultdict(Fairness)
    for active in lanes.values():
        _add(active, found)
    return dict(found)


def _add(active: Mapping[str, Past], found: dict[str, Fairness]) -> None:
    waited = {name: waiting_part(each) for name, each in active.items()}
    contended = max(waited.values(), default=0.0)
    if not contended:
        return
    for name, each in active.items():
        found[name].waited_s += each.queued_s
    if len(active) < 2:
        return  # who waits alone is entitled to everything
    got = {name: contended * max(0.0, each.served) for name, each in active.items()}
    claims = {
        name: Claim(each.weight, asked_for(got[name], waited[name] / contended))
        for name, each in active.items()
    }
    for name, entitled in filled(sum(got.values()), claims).items():
        found[name].got += got[name]
        found[name].entitled += entitled


def waiting_part(each: Past) -> float:
    """Of the time in which it was seen."""
    return min(1.0, each.waiting_s / each.observed_s) if each.observed_s else 0.0


def asked_for(got: float, waiting: float) -> float:
    """`waiting`: for which part it waited."""
    return got / (1.0 - waiting) if waiting < 1.0 else inf


def filled(whole: float, claims: Mapping[Name, Claim]) -> dict[Name, float]:
    """`whole` by weight, but to nobody more than it asked for: the weighted max-min share."""
    given, left = dict.fromkeys(claims, 0.0), whole
    order = sorted(claims, key=lambda name: _level(claims[name]))
    weights = sum(claim.weight for claim in claims.values())
    for name in order:  # who is satisfied first leaves its rest to all that follow
        claim = claims[name]
        given[name] = min(claim.asked, left * claim.weight / weights) if weights > 0 else 0.0
        left -= given[name]
        weights -= claim.weight
    return given


def _level(claim: Claim) -> float:
    return claim.asked / claim.weight if claim.weight > 0 else inf
