"""What the endpoints of one pool can take, and which of them takes a request.

1. An endpoint takes a request while it is available, has a slot, and has room for the load. One
   that runs nothing takes any request, so that none is too large to run at all.
2. The endpoint that probably holds the prompt's prefix is chosen first, unless it is fuller than
   the mean by more than PREFIX_BOUND; then the least full (docs/scheduling.md, Capacity).
3. What runs keeps its slot whatever becomes of its endpoint: lowered limits, draining and loss of
   health only keep new requests away. An endpoint that was removed is dropped when it is empty.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import inf

from scheduling.core.locality import Prefixes
from scheduling.core.model import EndpointConfig
from scheduling.core.request import Request

PREFIX_BOUND = 0.25  # of an endpoint's capacity
FULL = -1.0  # less room than any request needs


class Endpoint:
    """`room` is the largest load that it takes now, FULL when it takes nothing; `fullness` is the
    part of its capacity that is in use. Both are kept ready: they are read far more often than
    they change."""

    __slots__ = (
        "available",
        "fullness",
        "healthy",
        "id",
        "load",
        "max_load",
        "max_running",
        "offered",
        "prefixes",
        "requests",
        "room",
        "running",
    )

    def __init__(self, config: EndpointConfig) -> None:
        self.id = config.id
        self.healthy = True
        self.requests: dict[Request, None] = {}  # in order, so that sums come out alike
        self.running = 0  # how many these are
        self.load = 0.0
        self.prefixes = Prefixes()
        self.configure(config)

    def configure(self, config: EndpointConfig | None) -> None:
        """None: it was removed, and takes nothing any more."""
        self.offered = config is not None and config.available
        if config is not None:
            self.max_running = config.max_running
            self.max_load = config.max_load
        self.set_healthy(self.healthy)

    def set_healthy(self, healthy: bool) -> None:
        self.healthy = healthy
        self.available = self.offered and healthy
        self.measure()

    def take(self, request: Request) -> None:
        self.requests[request] = None
        self.running += 1
        self.load += request.ticket.load
        request.endpoint = self
        if request.ticket.prefix:
            self.prefixes.note(request.ticket.prefix, request.ticket.load, self.max_load)
        self.measure()

    def release(self, request: Request) -> None:
        del self.requests[request]
        self.running -= 1
        # Set to nothing when empty, so that rounding never adds up to a load that nobody holds.
        self.load = self.load - request.ticket.load if self.running else 0.0
        self.measure()

    def measure(self) -> None:
        by_requests = self.running / self.max_running if self.max_running else 1.0
        by_load = self.load / self.max_load if self.max_load else 1.0
        self.fullness = by_requests if by_requests > by_load else by_load
        if not self.available or by_requests >= 1:
            self.room = FULL
        else:
            self.room = self.max_load - self.load if self.running else inf

    def overload(self, load: float) -> float:
        """What must end here before `load` fits."""
        return self.load + load - max(self.max_load, load)


class Endpoints:
    """The endpoints of one pool, in the order of its configuration."""

    def __init__(self) -> None:
        self.all: dict[str, Endpoint] = {}
        self.max_running = 0  # of those available
        self.max_load = 0.0

    def configure(self, configs: Iterable[EndpointConfig]) -> None:
        wanted = {config.id: config for config in configs}
        gone = {id: end for id, end in self.all.items() if id not in wanted}
        self.all = {id: self.all.get(id) or Endpoint(config) for id, config in wanted.items()}
        for id, config in wanted.items():
            self.all[id].configure(config)
        for id, endpoint in gone.items():
            endpoint.configure(None)
            if endpoint.running:
                self.all[id] = endpoint
        self.measure()

    def measure(self) -> None:
        available = [e for e in self.all.values() if e.available]
        self.max_running = sum(e.max_running for e in available)
        self.max_load = sum(e.max_load for e in available)

    def room(self, barred: Endpoint | None = None) -> float:
        """The largest load that one of them takes now; FULL when all are."""
        most = FULL
        for endpoint in self.all.values():
            if endpoint.room > most and endpoint is not barred:
                most = endpoint.room
        return most

    def choose(self, load: float, prefix: int, barred: Endpoint | None) -> Endpoint | None:
        best: Endpoint | None = None
        least = inf
        for endpoint in self.all.values():
            if load <= endpoint.room and endpoint.fullness < least and endpoint is not barred:
                best, least = endpoint, endpoint.fullness
        if prefix and best is not None and prefix not in best.prefixes:
            return self.holder(load, prefix, barred) or best
        return best

    def holder(self, load: float, prefix: int, barred: Endpoint | None) -> Endpoint | None:
        """The endpoint that probably holds `prefix`, when it may take the request; the least full
        of several."""
        found: Endpoint | None = None
        least = inf
        for endpoint in self.all.values():
            if load > endpoint.room or prefix not in endpoint.prefixes or endpoint is barred:
                continue
            if endpoint.fullness < least:
                found, least = endpoint, endpoint.fullness
        if found is None:
            return None
        peers = [e.fullness for e in self.all.values() if e.available]
        return found if least <= sum(peers) / len(peers) + PREFIX_BOUND else None

    def nearest_to_fit(self, load: float) -> Endpoint | None:
        """The one where the least must end before `load` fits."""
        available = [e for e in self.all.values() if e.available]
        return min(available, key=lambda e: e.overload(load), default=None)
