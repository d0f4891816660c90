"""Alerts by a signed POST. The one place outside the gateway that speaks HTTP to others.

1. `X-Fairlane-Signature: v1=<hex>` is HMAC-SHA256, by the destination's secret, of
   `X-Fairlane-Timestamp`, a dot, and the body. A receiver refuses old timestamps.
2. The secret is made of SECRET_KEY and the destination's salt: it is shown once and stored nowhere.
3. A name is looked up once, each of its addresses is checked as an endpoint's is, and that address
   is the one connected to: what a name leads to cannot change in between. No redirect is followed.
4. A receiver has `WHOLE_S` for all of it. One that answers byte by byte would otherwise hold up
   every other destination's messages for as long as it likes.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import socket
import time
from collections.abc import Sequence
from hashlib import sha256

import httpx
from django.utils.crypto import salted_hmac

from metering.alerts.message import Message
from metering.models import AlertDestination
from tenants.core.checks import no_metadata_host, webhook_url

TIMEOUT = httpx.Timeout(5.0, connect=3.0)
WHOLE_S = 10.0
VERSION = 1


class Refused(Exception):
    """The receiver answered with something else than success."""


def secret_of(destination: AlertDestination) -> str:
    made = salted_hmac(
        "fairlane.webhook", f"{destination.pk}:{destination.salt}", algorithm="sha256"
    )
    return f"whsec_{made.hexdigest()}"


def signature(secret: str, timestamp: str, body: bytes) -> str:
    signed = f"{timestamp}.".encode() + body
    return f"v1={hmac.new(secret.encode(), signed, sha256).hexdigest()}"


def send(destination: AlertDestination, messages: Sequence[Message]) -> None:
    """Raises Refused, httpx.HTTPError, OSError, ValueError."""
    told = {"version": VERSION, "events": [each.plain() for each in messages]}
    body = json.dumps(told, separators=(",", ":")).encode()
    timestamp = str(int(time.time()))
    headers = {
        "Content-Type": "application/json",
        "User-Agent": "Fairlane",
        "X-Fairlane-Timestamp": timestamp,
        "X-Fairlane-Signature": signature(secret_of(destination), timestamp, body),
    }
    url = httpx.URL(webhook_url(destination.address))
    request = httpx.Request(
        "POST",
        url.copy_with(host=looked_up(url)),
        content=body,
        headers={**headers, "Host": url.netloc.decode()},
        extensions={"sni_hostname": url.host, "timeout": TIMEOUT.as_dict()},
    )
    status = asyncio.run(_status(request))
    if not 200 <= status < 300:
        raise Refused(f"{url.host} answered with {status}")


async def _status(request: httpx.Request) -> int:
    """Of the answer; what else it says is of no use to anybody here.

    Raises:
        TimeoutError: it was not there after `WHOLE_S`.
    """
    try:
        async with asyncio.timeout(WHOLE_S), httpx.AsyncClient(trust_env=False) as client:
            answer = await client.send(request, stream=True)
            await answer.aclose()
            return answer.status_code
    except TimeoutError:
        raise TimeoutError(f"no whole answer within {WHOLE_S:g} s") from None


def looked_up(url: httpx.URL) -> str:
    """The address to connect to.

    Raises:
        ValueError: the name leads to an address that hands out credentials.
        OSError: it leads nowhere.
    """
    port = url.port or {"http": 80, "https": 443}[url.scheme]
    found = [
        str(place[0]) for *_, place in socket.getaddrinfo(url.host, port, type=socket.SOCK_STREAM)
    ]
    for address in found:
        no_metadata_host(address.partition("%")[0])
    return found[0]
