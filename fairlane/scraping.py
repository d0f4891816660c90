"""Who may read /metrics: it names every tenant and tells what each uses, and stands at the address
that tenants call.

1. The address at the other end of the connection decides, never a header.
2. What came through a proxy is nobody's own: its address is the proxy's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from gateway.peers import known

FORWARDED = {b"x-forwarded-for", b"forwarded", b"x-real-ip"}
REFUSED = b"Not from here. FAIRLANE_METRICS_FROM says from which addresses /metrics is read.\n"


def allowed_from(networks: Iterable[str]) -> Callable[[Any], bool]:
    """Whether an ASGI scope may read /metrics."""
    is_known = known(networks)

    def allowed(scope: Any) -> bool:
        return not any(name in FORWARDED for name, _ in scope["headers"]) and is_known(scope)

    return allowed
