"""Who is at the other end of a connection: an address that the operator named, or just anybody."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import lru_cache
from ipaddress import ip_address, ip_network
from typing import Any

REQUEST_ID = b"x-request-id"
ID = re.compile(rb"[A-Za-z0-9._:/@+=-]{1,128}")  # that somebody else made


def known(networks: Iterable[str]) -> Callable[[Any], bool]:
    """Whether the peer of an ASGI scope is in one of them. The connection's address decides, never
    a header."""
    named = [ip_network(network) for network in networks]

    @lru_cache(maxsize=1024)
    def is_known(host: str) -> bool:
        try:
            address = ip_address(host)
        except ValueError:  # a socket in the file system has no address
            return False
        mapped = getattr(address, "ipv4_mapped", None) or address
        return any(mapped in network for network in named)

    def allowed(scope: Any) -> bool:
        client = scope.get("client")
        return client is not None and is_known(client[0])

    return allowed


class Proxies:
    """The proxies in front. Their `x-request-id` becomes the call's; what another caller sends
    under that name is nobody's."""

    def __init__(self, networks: Iterable[str]) -> None:
        networks = list(networks)
        self._is_ours = known(networks) if networks else None

    def id_from(self, scope: Any) -> str:
        """Empty where there is no such proxy, or where its id is none: longer than 128 characters,
        of others than letters, digits and . _ : / @ + = -, or given twice."""
        if self._is_ours is None or not self._is_ours(scope):
            return ""
        given = {value for name, value in scope["headers"] if name == REQUEST_ID}
        value = given.pop() if len(given) == 1 else b""
        return value.decode() if ID.fullmatch(value) else ""
