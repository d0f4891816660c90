"""Asking an engine: its address, its key, its way to speak; and what its failures mean here.

1. An engine that fails before it answered anything is left once for another that has room.
2. A 429 or 503 of an engine means "full": the caller hears when to come back, and that the engine
   said so, not a limit of its own (case R13).
3. An engine's own words reach the caller only where the request was at fault.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import os
from collections.abc import Callable

import httpx

from gateway.dialects import DIALECTS, Dialect
from gateway.errors import ApiError, Outcome
from gateway.run import Run
from gateway.upstream.client import EngineClient
from gateway.upstream.counting import count_tokens
from gateway.upstream.facts import EngineFacts, read_short
from gateway.wire.headers import Asked, to_engine
from gateway.wire.request import ParsedCall, rewrite
from gateway.wire.routes import Route
from gateway.wire.usage import EngineError, read_body
from tenants.core.snapshot import PolicySnapshot, PoolPolicy

Response = httpx.Response
TransportError = httpx.TransportError
RETRY_NO_ENDPOINT_S = 5.0  # about one round of health checks
FULL = (429, 503)
NOT_THERE = (404, 405, 501)
FROM_ENGINE = (b"x-fairlane-source", b"engine")


class EngineFailed(ApiError):
    """An engine failed before it answered; another one may do better."""


class Engines:
    def __init__(
        self,
        client: EngineClient,
        salt_key: bytes,
        is_healthy: Callable[[str, str], bool],
        unreachable: Callable[[str, str], None],
    ) -> None:
        self.client = client
        self.facts = EngineFacts(client)
        self._is_healthy = is_healthy
        self._unreachable = unreachable
        self._salt_key = salt_key
        self._salts: dict[str, str] = {}
        self._authorization: dict[str, bytes] = {}

    def configure(self, snapshot: PolicySnapshot) -> list[str]:
        """Take the pools' keys from the environment; returns the names of variables not set."""
        named = {p.model: p.api_key_env for p in snapshot.pools.values() if p.api_key_env}
        found = {model: os.environ.get(name, "") for model, name in named.items()}
        self._authorization = {m: b"Bearer " + k.encode() for m, k in found.items() if k}
        return [named[model] for model, key in found.items() if not key]

    def check_usable(self, pool: PoolPolicy) -> None:
        """Raises:
        ApiError: no_endpoint, when every endpoint of the pool is known to be down or drained.
        """
        for endpoint in pool.endpoints:
            if not endpoint.drain and self._is_healthy(pool.model, endpoint.url):
                return
        raise ApiError(
            Outcome.NO_ENDPOINT,
            f"No engine of the model '{pool.model}' is in service at the moment. Try again later.",
            retry_after_s=RETRY_NO_ENDPOINT_S,
        )

    def salt(self, tenant: str) -> str:
        """A tenant's prefix-cache salt: stable, and not to be guessed by another tenant."""
        salt = self._salts.get(tenant)
        if salt is None:
            mac = hmac.new(self._salt_key, b"cache-salt:" + tenant.encode(), hashlib.sha256)
            salt = self._salts[tenant] = mac.hexdigest()[:32]
        return salt

    async def learn(self, pool: PoolPolicy) -> None:
        await self.facts.learn(pool, self._key_header(pool))

    async def count(self, pool: PoolPolicy, call: ParsedCall, patience_s: float) -> int | str:
        """Prompt tokens as an engine of the pool counts them; or why they are not known."""
        for endpoint in pool.endpoints:
            if not endpoint.drain and self._is_healthy(pool.model, endpoint.url):
                key = self._key_header(pool)
                return await count_tokens(self.client, endpoint.url, key, pool, call, patience_s)
        return "no engine is in service"

    def room_for_output(self, model: str, prompt_tokens: int, most: int) -> int | None:
        """A bound on the output to give the engine where the caller gave none: policy's, kept
        inside the engine's context, which it would refuse to pass. None: leave it to the engine."""
        context = self.facts.context_tokens(model)
        if context is None:
            return most
        room = context - prompt_tokens - prompt_tokens // 4 - 64  # the estimate may be short
        return min(most, room) if room > 0 else None

    async def ask(
        self, run: Run, call: ParsedCall, asked: Asked, bound: int | None
    ) -> httpx.Response:
        """Send the request to the endpoint that was granted; the answer's status is 200.

        Raises:
            EngineFailed: it may be tried on another endpoint; nothing was answered.
            ApiError: the engine refused the request itself, or took too long.
        """
        assert run.plan is not None
        assert run.place is not None
        pool = run.plan.pool
        dialect = DIALECTS[pool.engine]
        body, policy_headers = rewrite(
            call,
            dialect,
            priority=run.place.lane.engine_priority,
            cache_salt=self.salt(run.plan.hold.tenant) if pool.isolate_prefix_cache else None,
            served_model=pool.model,
            max_output_tokens=bound,
            tenant=run.plan.hold.tenant,
            lane=run.place.lane.name,
        )
        headers = to_engine(asked, run.request_id, [*policy_headers, *self._key_header(pool)])
        connect_s, first_byte_s = self._patience(run, call)
        try:
            response = await self.client.send(
                "POST",
                call.route.url(run.endpoint),
                headers,
                body,
                connect_s=connect_s,
                first_byte_s=first_byte_s,
            )
        except TransportError as error:
            cut_short = connect_s < pool.timeouts.connect
            if isinstance(error, httpx.ConnectError) or (
                isinstance(error, httpx.ConnectTimeout) and not cut_short
            ):
                self._unreachable(pool.model, run.endpoint)
            raise failure(error) from error
        if response.status_code == 200:
            return response
        raise await self._refusal(response, dialect, connect_s, call.route)

    def _patience(self, run: Run, call: ParsedCall) -> tuple[float, float]:
        """For the connection, and for the answer's first byte: within the time of the whole call,
        of which another endpoint may have used up some."""
        assert run.plan is not None
        limits, now = run.plan.pool.timeouts, asyncio.get_running_loop().time()
        left = run.deadline - now
        if left <= 0:
            raise ApiError(Outcome.ENGINE_TIMEOUT, "The engine took too long.")
        # A whole answer has no first token to see: its head comes when all is done.
        run.first_by = now + limits.first_token if call.stream else run.deadline
        return min(limits.connect, left), min(run.first_by - now, left)

    def _key_header(self, pool: PoolPolicy) -> list[tuple[bytes, bytes]]:
        value = self._authorization.get(pool.model)
        return [] if value is None else [(b"authorization", value)]

    async def _refusal(
        self, response: httpx.Response, dialect: Dialect, patience_s: float, route: Route
    ) -> ApiError:
        try:
            said = read_body(await read_short(response, patience_s), dialect).error
        except TransportError:
            said = None
        if response.status_code in NOT_THERE and not (said and "model" in said.message.lower()):
            return missing(route, response.status_code)
        return refusal(response.status_code, said, response.headers.get("retry-after"))


def missing(route: Route, status: int) -> ApiError:
    """The engine has no such endpoint: its model is of another kind, or it never learnt it."""
    return ApiError(
        Outcome.ENGINE_ERROR,
        f"The engine of this model does not serve {route.path} (HTTP {status}). "
        "Ask your platform team which models do.",
        headers=[FROM_ENGINE, (b"x-should-retry", b"false")],
    )


def refusal(status: int, said: EngineError | None, retry_after: str | None) -> ApiError:
    """What an engine's status means for the caller."""
    words = said.message if said else f"HTTP {status}"
    if status in FULL:
        return EngineFailed(
            Outcome.OVERLOADED,
            "Every engine of this model is full at the moment. Try again later.",
            retry_after_s=_seconds(retry_after),
            headers=[FROM_ENGINE],
        )
    if status in (400, 413, 422):
        about_length = "context length" in words or (said and said.param == "input_tokens")
        outcome = Outcome.CONTEXT_LENGTH_EXCEEDED if about_length else Outcome.INVALID_REQUEST
        return ApiError(outcome, words, param=said.param if said else None, headers=[FROM_ENGINE])
    if status >= 500:
        return EngineFailed(Outcome.ENGINE_ERROR, f"The engine failed (HTTP {status}).")
    # 401, 403, 404: the pool is set up wrongly, which is not the caller's doing.
    return ApiError(Outcome.ENGINE_ERROR, f"The engine refused the gateway's call (HTTP {status}).")


def stream_refusal(said: EngineError) -> ApiError:
    """A stream that began with an error: its code is what the status would have been."""
    code = int(said.code) if said.code.isdigit() else 500
    return refusal(code if 400 <= code <= 599 else 500, said, None)


def failure(error: TransportError) -> ApiError:
    """A connection that failed, before or in the middle of an answer."""
    if isinstance(error, httpx.ReadTimeout | httpx.WriteTimeout):
        return ApiError(Outcome.ENGINE_TIMEOUT, f"The engine took too long: {error}.")
    return EngineFailed(Outcome.ENGINE_ERROR, "The engine could not be reached or broke off.")


def _seconds(text: str | None) -> float | None:
    try:
        return float(text) if text else None
    except ValueError:
        return None
