"""What the endpoints of one pool can take, and which of them takes a request.

1. An endpoint takes a request while it is available, has a slot, and has room for the load. One
   that runs nothing takes any request, so that none is too large to run at all.
2. The endpoint that probably holds the prompt's prefix is chosen first, unless it is fuller than
   the mean by more than PREFIX_BOUND; then the least full (docs/scheduling.md, Capacity).
3. What runs keeps its slot whatever becomes of its endpoint: lowered limits, draining and loss of
   health only keep new requests away. An endpoint that was removed is dropped when it is empty.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable

from scheduling.core.model import EndpointConfig
from scheduling.core.request import Request

PREFIX_BOUND = 0.25  # of an endpoint's capacity
PREFIXES = 8192  # remembered per pool, least recently used go first


class Endpoint:
    __slots__ = ("healthy", "id", "load", "max_load", "max_running", "offered", "requests")

    def __init__(self, config: EndpointConfig) -> None:
        self.id = config.id
        self.healthy = True
        self.requests: set[Request] = set()
        self.load = 0.0
        self.configure(config)

    def configure(self, config: EndpointConfig | None) -> None:
        self.offered = config is not None and config.available
        if config is not None:
            self.max_running = config.max_running
            self.max_load = config.max_load

    @property
    def available(self) -> bool:
        return self.offered and self.healthy

    @property
    def fullness(self) -> float:
        by_requests = len(self.requests) / self.max_running if self.max_running else 1.0
        return max(by_requests, self.load / self.max_load if self.max_load else by_requests)

    def fits(self, load: float) -> bool:
        running = len(self.requests)
        return (
            self.offered
            and self.healthy
            and running < self.max_running
            and (running == 0 or self.load + load <= self.max_load)
        )

    def overload(self, load: float) -> float:
        """What must end here before `load` fits."""
        return self.load + load - max(self.max_load, load)

    def take(self, request: Request) -> None:
        self.requests.add(request)
        self.load += request.ticket.load
        request.endpoint = self

    def release(self, request: Request) -> None:
        self.requests.remove(request)
        # Set to nothing when empty, so that rounding never adds up to a load that nobody holds.
        self.load = self.load - request.ticket.load if self.requests else 0.0


class Endpoints:
    """The endpoints of one pool, in the order of its configuration."""

    def __init__(self) -> None:
        self.all: dict[str, Endpoint] = {}
        self.max_running = 0  # of those available
        self.max_load = 0.0
        self._prefixes: OrderedDict[int, Endpoint] = OrderedDict()

    def configure(self, configs: Iterable[EndpointConfig]) -> None:
        wanted = {config.id: config for config in configs}
        kept = {id: endpoint for id, endpoint in self.all.items() if endpoint.requests}
        for id, config in wanted.items():
            endpoint = self.all.get(id) or Endpoint(config)
            endpoint.configure(config)
            kept[id] = endpoint
        for id in kept.keys() - wanted.keys():
            kept[id].configure(None)
        self.all = kept
        self.measure()

    def measure(self) -> None:
        available = [e for e in self.all.values() if e.available]
        self.max_running = sum(e.max_running for e in available)
        self.max_load = sum(e.max_load for e in available)

    def any_open(self) -> bool:
        for endpoint in self.all.values():  # noqa: SIM110  # twice as fast as any(), asked always
            if endpoint.fits(0.0):
                return True
        return False

    def choose(self, load: float, prefix: int, barred: Endpoint | None) -> Endpoint | None:
        best: Endpoint | None = None
        least = 0.0
        for endpoint in self.all.values():
            if endpoint is not barred and endpoint.fits(load):
                fullness = endpoint.fullness
                if best is None or fullness < least:
                    best, least = endpoint, fullness
        if best is not None and prefix:
            holder = self.holder(load, prefix)
            if holder is not None and holder is not barred:
                return holder
        return best

    def holder(self, load: float, prefix: int) -> Endpoint | None:
        """The endpoint that probably holds `prefix`, when it may take the request."""
        endpoint = self._prefixes.get(prefix) if prefix else None
        if endpoint is None or not endpoint.fits(load):
            return None
        peers = [e.fullness for e in self.all.values() if e.available]
        mean = sum(peers) / len(peers)
        return endpoint if endpoint.fullness <= mean + PREFIX_BOUND else None

    def remember(self, prefix: int, endpoint: Endpoint) -> None:
        self._prefixes[prefix] = endpoint
        self._prefixes.move_to_end(prefix)
        if len(self._prefixes) > PREFIXES:
            self._prefixes.popitem(last=False)

    def nearest_to_fit(self, load: float) -> Endpoint | None:
        """The one where the least must end before `load` fits."""
        available = [e for e in self.all.values() if e.available]
        return min(available, key=lambda e: e.overload(load), default=None)
