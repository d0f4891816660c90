"""Who may read /metrics: it names every tenant and tells what each uses, and stands at the address
that tenants call.

1. The address at the other end of the connection decides, never a header.
2. What came through a proxy is nobody's own: its address is the proxy's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache
from ipaddress import ip_address, ip_network
from typing import Any

FORWARDED = {b"x-forwarded-for", b"forwarded", b"x-real-ip"}
REFUSED = b"Not from here. FAIRLANE_METRICS_FROM says from which addresses /metrics is read.\n"


def allowed_from(networks: Iterable[str]) -> Callable[[Any], bool]:
    """Whether an ASGI scope may read /metrics."""
    known = [ip_network(network) for network in networks]

    @lru_cache(maxsize=64)
    def is_known(host: str) -> bool:
        try:
            address = ip_address(host)
        except ValueError:  # a socket in the file system has no address
            return False
        mapped = getattr(address, "ipv4_mapped", None) or address
        return any(mapped in network for network in known)

    def allowed(scope: Any) -> bool:
        client = scope.get("client")
        passed_on = any(name in FORWARDED for name, _ in scope["headers"])
        return client is not None and not passed_on and is_known(client[0])

    return allowed
