"""One ASGI entry: the gateway's paths go straight to it, everything else to Django.

`/v1` never passes Django's middleware; a console-only process has no gateway mounted.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from typing import Any

from django.conf import settings
from django.core.asgi import get_asgi_application
from structlog.contextvars import bound_contextvars
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "fairlane.settings")

_django: Any = get_asgi_application()  # loads the apps: what follows needs them

from fairlane import front, scraping, workers  # noqa: E402
from gateway.app import GatewayApp, build_gateway, is_ours  # noqa: E402
from gateway.peers import REQUEST_ID, Proxies  # noqa: E402
from gateway.run import new_request_id  # noqa: E402
from tenants.postgres import Session  # noqa: E402

Session.patience_s = 60.0  # no page asks for what takes longer, nor does the gateway


def behind(app: Any, proxies: list[str]) -> Any:
    """`proxies` are those whose word counts for who the caller is, and whether by TLS."""
    return ProxyHeadersMiddleware(app, trusted_hosts=proxies) if proxies else app


_django = behind(_django, settings.TRUSTED_PROXIES)


class Fairlane:
    def __init__(self, gateway: GatewayApp | None, console: bool) -> None:
        self.gateway = gateway
        self.console = console
        self.may_scrape = scraping.allowed_from(settings.FAIRLANE_METRICS_FROM)
        self.proxies = Proxies(settings.TRUSTED_PROXIES)
        self.stops = False

    def drain(self) -> None:
        """The server is to stop; what runs may finish."""
        self.stops = True
        if self.gateway is not None:
            self.gateway.drain()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            with suppress(asyncio.CancelledError):  # told to stop before it was ready
                await self._lifespan(receive, send)
        elif self._is_for_gateway(scope):
            await self._gateway(scope, receive, send)
        elif scope["type"] == "http":
            name = self.proxies.id_from(scope) or new_request_id()
            with bound_contextvars(request_id=name):
                await self._others(scope, receive, named(name, send))

    async def _others(self, scope: Any, receive: Any, send: Any) -> None:
        if self.gateway is not None and scope["path"] == "/metrics":
            await _plain(send, 403, scraping.REFUSED)
        elif self.gateway is None and scope["path"] in ("/healthz", "/readyz"):
            await self._probe(scope["path"], send)
        elif self.console:
            await front.ask(_django, scope, receive, send)
        else:
            await _plain(send, 404, b"This process serves the gateway only.\n")

    async def _probe(self, path: str, send: Any) -> None:
        """Of a process without a gateway, which answers for itself where there is one."""
        if self.stops and path == "/readyz":
            await _plain(send, 503, b"not ready: stopping\n")
        else:
            await _plain(send, 200, b"ok\n")

    async def _gateway(self, scope: Any, receive: Any, send: Any) -> None:
        """A scrape tells of all workers, unless it is one of them that asks."""
        assert self.gateway is not None
        if scope["path"] == "/metrics" and workers.doors_of_all() and not _from_worker(scope):
            await _plain(send, 200, await workers.everybodys())
        else:
            await self.gateway(scope, receive, send)

    def _is_for_gateway(self, scope: Any) -> bool:
        if self.gateway is None or scope["type"] != "http" or not is_ours(scope["path"]):
            return False
        return scope["path"] != "/metrics" or self.may_scrape(scope) or _from_worker(scope)

    async def _lifespan(self, receive: Any, send: Any) -> None:
        """Start and stop with the server; a failed start is reported, and stops the server."""
        await receive()
        try:
            if self.gateway is not None:
                await self.gateway.start()
        except Exception as error:
            await send({"type": "lifespan.startup.failed", "message": said(error)})
            raise
        await send({"type": "lifespan.startup.complete"})
        await receive()
        if self.gateway is not None:
            await self.gateway.stop()
        await send({"type": "lifespan.shutdown.complete"})


def said(error: Exception) -> str:
    """Of a start that failed: which file it was, and where files are to lie."""
    if isinstance(error, OSError) and error.filename is not None:
        lie = f"files lie in {settings.FAIRLANE_DATA_DIR} (FAIRLANE_DATA_DIR)"
        return f"{error.strerror}: {error.filename}; {lie}"
    return repr(error)


def named(name: str, send: Any) -> Any:
    """What is sent, with the request's id in the answer's head."""

    async def told(message: Any) -> None:
        if message["type"] == "http.response.start":
            headers = [*message.get("headers", ()), (REQUEST_ID, name.encode())]
            message = {**message, "headers": headers}
        await send(message)

    return told


def _from_worker(scope: Any) -> bool:
    """It came by a worker's own door, whose callers have no address."""
    return scope.get("client") is None and bool(workers.doors_of_all())


async def _plain(send: Any, status: int, body: bytes) -> None:
    headers = [(b"content-type", b"text/plain; charset=utf-8")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def build(role: str) -> Fairlane:
    """`role` is `all`, `gateway` or `console`."""
    gateway = build_gateway() if role in ("all", "gateway") else None
    return Fairlane(gateway, console=role in ("all", "console"))


application = build(os.environ.get("FAIRLANE_ROLE", "all"))
