"""The ASGI app for `/v1`, `/tokenize`, the probes and `/metrics`: which path is whose.

A call has one spelling: one that is escaped, doubled, ended by a slash or of other case is a 404
here, and no engine hears of it.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterable
from datetime import UTC, datetime

import msgspec
from django.conf import settings
from prometheus_client import CONTENT_TYPE_LATEST

from gateway import errors, metrics
from gateway.errors import ApiError, Outcome, Voice
from gateway.exchange import Exchange, Receive, Scope, Send
from gateway.identity import identify
from gateway.peers import Proxies
from gateway.run import new_request_id
from gateway.service import Gateway
from gateway.wire.headers import Headers, read
from gateway.wire.routes import ROUTES, Kind
from tenants.core.snapshot import PolicySnapshot, TenantPolicy

JSON = (b"content-type", b"application/json")
TEXT = (b"content-type", b"text/plain; charset=utf-8")
CALLS: dict[str, Kind] = {route.path: kind for kind, route in ROUTES.items()}
MODELS = "/v1/models"
SERVED = f"Served are: {', '.join([*CALLS, MODELS])}."
PROBES = ("/healthz", "/health", "/readyz", "/metrics")
OURS = frozenset({"v1", "tokenize", "detokenize"})  # first parts of paths, in any case

Handler = Callable[[Exchange], Awaitable[None]]


def voice_of(path: str) -> Voice:
    """How an error sounds to whoever asks such a path, known or not."""
    return errors.ANTHROPIC if path.startswith(ROUTES["messages"].path) else errors.OPENAI


def is_ours(path: str) -> bool:
    """Whether a path is the gateway's to answer, if only by saying that it is spelt wrongly."""
    if path.startswith("/v1/") or path in PROBES:
        return True
    return path.lstrip("/").partition("/")[0].lower() in OURS


class GatewayApp:
    """Started and stopped with the server by `fairlane.asgi`."""

    def __init__(self, gateway: Gateway, proxies: Iterable[str] = ()) -> None:
        self._gateway = gateway
        self._proxies = Proxies(proxies)
        self._born = datetime.fromtimestamp(int(time.time()), UTC)
        self.start = gateway.start
        self.stop = gateway.stop
        self.drain = gateway.drain
        self._plain: dict[str, Handler] = {
            "/healthz": self._healthz,
            "/health": self._healthz,  # vLLM's name: clients ask for it before they begin
            "/readyz": self._readyz,
            "/metrics": self._metrics,
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        exchange = Exchange(scope, receive, send)
        exchange.given_id = self._proxies.id_from(scope)
        path, method = scope["path"], scope["method"]
        kind = CALLS.get(path)
        if kind is not None and method == "POST" and b"%" not in scope.get("raw_path", b""):
            await self._gateway.calls.serve(kind, exchange)
            return
        exchange.given_id = exchange.given_id or new_request_id()
        exchange.always = [(name, exchange.given_id.encode()) for name in voice_of(path).ids]
        if path in self._plain and method in ("GET", "HEAD"):
            await self._plain[path](exchange)
        else:
            await self._other(path, method, exchange)

    async def _other(self, path: str, method: str, exchange: Exchange) -> None:
        try:
            if path == MODELS or path.startswith(MODELS + "/"):
                await self._models(path, method, exchange)
            elif path in CALLS and method != "POST":
                await wrong_method(exchange, method, path, b"POST")
            elif path in PROBES:
                await wrong_method(exchange, method, path, b"GET")
            else:
                raise ApiError(voice_of(path).no_path, f"There is no {path} here. {SERVED}")
        except ApiError as error:
            status = 404 if error.outcome is Outcome.INVALID_REQUEST else error.status
            headers = [JSON, *errors.headers(error)]
            body = voice_of(path).body(error, exchange.given_id)
            await exchange.respond(status, headers, body)

    async def _models(self, path: str, method: str, exchange: Exchange) -> None:
        if method not in ("GET", "HEAD"):
            await wrong_method(exchange, method, path, b"GET")
            return
        snapshot = self._gateway.snapshot
        tenant = identify(snapshot, read(exchange.headers).key, datetime.now(UTC)).tenant
        models = self._models_of(snapshot, tenant)
        if path != MODELS:
            name = path[len(MODELS) + 1 :]
            found = next((m for m in models if m["id"] == name), None)
            if found is None:
                message = f"The model '{name}' does not exist here, or is not yours to use."
                raise ApiError(Outcome.MODEL_NOT_FOUND, message, param="model")
            await exchange.respond(200, [JSON], msgspec.json.encode(found))
            return
        await exchange.respond(200, [JSON], msgspec.json.encode(_page(models)))

    def _models_of(self, snapshot: PolicySnapshot, tenant: TenantPolicy) -> list[dict[str, object]]:
        """Those the tenant may use, aliases beside the models that they stand for."""
        return [
            _model(name, self._born)
            for name, pool in sorted(snapshot.models.items())
            if pool.model in tenant.models
        ]

    async def _healthz(self, exchange: Exchange) -> None:
        await exchange.respond(200, [TEXT], b"ok\n")

    async def _readyz(self, exchange: Exchange) -> None:
        if fault := self._gateway.fault:
            await exchange.respond(503, [TEXT], f"not ready: {fault}\n".encode())
        else:
            await exchange.respond(200, [TEXT], b"ready\n")

    async def _metrics(self, exchange: Exchange) -> None:
        content_type = (b"content-type", CONTENT_TYPE_LATEST.encode())
        self._gateway.measure()
        await exchange.respond(200, [content_type], metrics.exposition())


def _model(name: str, born: datetime) -> dict[str, object]:
    """As OpenAI's clients read it, and as Anthropic's do: no field of one is another's."""
    openai = {"id": name, "object": "model", "created": int(born.timestamp())}
    anthropic = {"type": "model", "display_name": name, "created_at": born.isoformat()}
    return {**openai, "owned_by": "fairlane", **anthropic}


def _page(models: list[dict[str, object]]) -> dict[str, object]:
    """All of them: there is no second page."""
    ends = (models[0]["id"], models[-1]["id"]) if models else (None, None)
    listing = {"object": "list", "data": models, "has_more": False}
    return {**listing, "first_id": ends[0], "last_id": ends[1]}


async def wrong_method(exchange: Exchange, method: str, path: str, allowed: bytes) -> None:
    error = ApiError(Outcome.INVALID_REQUEST, f"{path} takes {allowed.decode()}, not {method}.")
    headers: Headers = [JSON, (b"allow", allowed)]
    await exchange.respond(405, headers, voice_of(path).body(error, exchange.given_id))


def build_gateway() -> GatewayApp:
    return GatewayApp(Gateway(), settings.TRUSTED_PROXIES)
