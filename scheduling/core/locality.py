"""Locality: a request goes where its prefix is, and within a quantum ahead of its turn for it.

Source: Cao et al., Locality-aware Fair Scheduling in LLM Serving, arXiv 2501.14312, with counters
in the place of their deficits; docs/scheduling.md tells it in prose.

1. An endpoint probably holds the prefixes of the requests that it took last, as many as fit into
   it together by their load: its cache forgets the least recently used first, and so does Prefixes.
2. Of the tenants within `quantum` of the least `v`, and in each of the next few requests of the
   application whose turn it is, the first goes whose prefix is held where there is room. So gaps
   between tenants grow by the quantum and by no more, and shares of applications not at all.
3. Nobody waits for ever: each request counts the service of those who overtook it. Past a quantum
   no later request of its own application does so any more, past LOOK_AHEAD quanta nobody does.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from math import inf
from typing import TYPE_CHECKING

from scheduling.core.request import Request

if TYPE_CHECKING:
    from scheduling.core.capacity import Endpoint

LOOK_AHEAD = 8  # tenants, and requests of each
MOST = 4096  # prefixes remembered per endpoint, however small

Holder = Callable[[Request], "Endpoint | None"]  # where its prefix is and it may go now


class Prefixes(OrderedDict[int, float]):
    """What one endpoint probably has in its cache, least recently used first; with loads."""

    __slots__ = ("total",)

    def __init__(self) -> None:
        super().__init__()
        self.total = 0.0

    def note(self, prefix: int, load: float, max_load: float) -> None:
        """A request that begins with `prefix` runs there now."""
        self.total += load - self.pop(prefix, 0.0)
        self[prefix] = load
        while len(self) > 1 and (self.total > max_load or len(self) > MOST):
            self.total -= self.popitem(last=False)[1]


def at_home(
    first: Request, turn: Request, quantum: float, holder: Holder
) -> tuple[Request, Endpoint] | None:
    """Invariants 2 and 3 for one tenant, whose next request is `first`, while `turn` has the
    turn; with the endpoint."""
    if first.flow.share.v > turn.flow.share.v + quantum:
        return None
    left = inf if first is turn else LOOK_AHEAD * quantum - turn.overtaken
    request: Request | None = first
    for _ in range(LOOK_AHEAD):
        if request is None or left <= 0:
            break
        endpoint = holder(request) if request.ticket.cost <= left else None
        if endpoint is not None:
            return request, endpoint
        left = min(left, quantum - request.overtaken)
        request = request.after
    return None


def overtake(request: Request, turn: Request) -> None:
    """`request` goes, though it is `turn`'s turn."""
    cost = request.ticket.cost
    if request.flow is not turn.flow:
        turn.overtaken += cost
    ahead = request.flow.head
    while ahead is not None and ahead is not request:
        ahead.overtaken += cost
        ahead = ahead.after
