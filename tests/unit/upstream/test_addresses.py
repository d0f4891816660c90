"""No connection goes to an address that hands out credentials, whatever name leads there."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import httpx
import pytest

from gateway.upstream.addresses import Addresses
from gateway.upstream.client import EngineClient
from gateway.upstream.transport import EngineTransport

METADATA = "169.254.169.254"


@pytest.fixture
def leads_to(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Makes every name lead to these addresses."""

    def lead(*addresses: str) -> None:
        async def look_up(*_: Any, **__: Any) -> list[Any]:
            return [(socket.AF_INET, 1, 6, "", (address, 80)) for address in addresses]

        monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", look_up)

    return lead


@pytest.mark.parametrize(
    "address", [METADATA, "fe80::1%eth0", "100.100.100.200", "::ffff:169.254.169.254", "224.0.0.1"]
)
async def test_a_name_that_leads_there_is_refused(leads_to: Any, address: str) -> None:
    leads_to(address)
    with pytest.raises(OSError, match="link-local or metadata"):
        await Addresses().of("engine.example", 80)


async def test_of_several_addresses_those_are_left_out(leads_to: Any) -> None:
    leads_to(METADATA, "10.0.0.7", "10.0.0.7", "127.0.0.1")
    assert await Addresses().of("engine.example", 80) == ["10.0.0.7", "127.0.0.1"]


async def test_a_network_that_the_operator_names_is_open(leads_to: Any) -> None:
    leads_to("169.254.20.9", METADATA)
    addresses = Addresses(["169.254.20.0/24", "fd00::/8"])
    assert await addresses.of("engine.example", 80) == ["169.254.20.9"]


async def test_the_transport_opens_no_connection_there(
    leads_to: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor for a name whose look-up changed after the policy was written: each is looked at."""
    reached: list[str] = []

    async def connect(_: Any, host: str, *__: Any, **___: Any) -> Any:
        reached.append(host)
        raise ConnectionRefusedError

    monkeypatch.setattr(asyncio.get_running_loop(), "create_connection", connect)
    client = EngineClient(EngineTransport())
    for address in ("127.0.0.1", METADATA):
        leads_to(address)
        with pytest.raises(httpx.ConnectError):
            await client.send(
                "GET", "http://engine.example/v1", [], b"", connect_s=5, first_byte_s=5
            )
    assert reached == ["127.0.0.1"]
    await client.aclose()


@pytest.mark.parametrize("url", ["http://[v1.x]/v1", "http://xn--a-ecp.invalid/v1"])
async def test_a_url_that_no_connection_can_be_made_to_fails_as_any_engine_does(url: str) -> None:
    transport = EngineTransport()
    with pytest.raises(httpx.TransportError):
        await transport.ask("GET", url, [], b"", {"connect": 1.0, "pool": 1.0})
    await transport.aclose()
