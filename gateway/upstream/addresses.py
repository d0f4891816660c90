"""Where an engine's name leads, and which addresses no connection goes to.

Policy refuses addresses that hand out a machine's credentials (tenants.core.checks). A name can
lead to one all the same, today or from tomorrow on, so what it leads to is looked at each time
that a connection is opened, and the connection goes to the very address that was looked at.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Iterable

from tenants.core.checks import no_metadata_host

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class Addresses:
    def __init__(self, allowed: Iterable[str] = ()) -> None:
        """`allowed`: networks, refused otherwise, that the operator has engines in."""
        self._allowed: list[Network] = [ipaddress.ip_network(text) for text in allowed]

    async def of(self, host: str, port: int) -> list[str]:
        """Those that may be connected to, as the resolver orders them.

        Raises:
            OSError: the name leads nowhere, or only to addresses that are refused.
            UnicodeError: it is no name.
        """
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        addresses = list(dict.fromkeys(str(place[0]) for *_, place in found))
        open_ = [address for address in addresses if self._is_open(address)]
        if not open_:
            raise OSError(f"{host} leads to a link-local or metadata address, which is refused")
        return open_

    def _is_open(self, address: str) -> bool:
        plain = address.partition("%")[0]
        try:
            no_metadata_host(plain)
        except ValueError:
            reached = ipaddress.ip_address(plain)
            return any(reached in network for network in self._allowed)
        return True
