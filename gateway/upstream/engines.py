"""Asking an engine: its address, its key, its way to speak; and what its failures mean here.

1. An engine that fails before it answered anything is left once for another that has room.
2. A 429 or 503 of an engine means "full": the caller hears when to come back, and that the engine
   said so, not a limit of its own (case R13).
3. An engine's own words reach the caller only where the request was at fault.
4. What each answer says of its endpoint is told to whoever watches endpoints (`Heard`).
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import os
from collections.abc import Callable
from functools import partial
from math import isfinite
from typing import Any, Literal

import httpx

from gateway.dialects import DIALECTS, Dialect
from gateway.errors import ApiError, Outcome, come_back
from gateway.run import Run
from gateway.upstream.client import Answer, EngineClient
from gateway.upstream.counting import count_tokens
from gateway.upstream.facts import EngineFacts, read_short
from gateway.upstream.order import OrderWatch, Pending
from gateway.upstream.tokenizing import MOST_BYTES, encoded, is_foreign, tokenized
from gateway.wire.headers import Asked, Headers, first, to_engine
from gateway.wire.request import ParsedCall, rewrite
from gateway.wire.routes import Route
from gateway.wire.usage import EngineError, decode, read_body
from tenants.core.snapshot import PolicySnapshot, PoolPolicy

TransportError = httpx.TransportError
EARLY_S = 0.05  # a timer may ring so much before its time
RETRY_NO_ENDPOINT_S = 5.0  # about one round of health checks
FULL = (429, 503)
NOT_THERE = (404, 405, 501)
STATUS_OF = {"overloaded_error": 503, "rate_limit_error": 429, "invalid_request_error": 400}
Heard = Literal["answered", "failed", "full"]  # `failed`: 5xx, or it broke off before it answered
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
        heard: Callable[[str, str, Heard], None] = lambda pool, url, what: None,
    ) -> None:
        self.client = client
        self.facts = EngineFacts(client)
        self.order = OrderWatch()
        self._heard = heard
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
            f"No engine of the model '{pool.model}' is in service at the moment. "
            f"{come_back(RETRY_NO_ENDPOINT_S)}",
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
        for endpoint in pool.endpoints:
            self.order.forget((pool.model, endpoint.url))
        await self.facts.learn(pool, self.key_header(pool))

    def ignores_priority(self, pool: PoolPolicy, url: str) -> bool:
        """Whether the endpoint is known to serve waiting requests whatever their priority."""
        dialect = DIALECTS[pool.engine]
        if dialect.ignores_priority:
            return True
        told = self.facts.of(pool.model, url).by_priority
        return not told if told is not None else self.order.ignored((pool.model, url))

    async def count(self, pool: PoolPolicy, call: ParsedCall, patience_s: float) -> int | str:
        """Prompt tokens as an engine of the pool counts them; or why they are not known."""
        for endpoint in pool.endpoints:
            if not endpoint.drain and self._is_healthy(pool.model, endpoint.url):
                key = self.key_header(pool)
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

    async def ask(self, run: Run, call: ParsedCall, asked: Asked, bound: int | None) -> Answer:
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
        headers = to_engine(asked, run.shown_id, [*policy_headers, *self.key_header(pool)])
        headers = run.trace.asked(run, headers)
        if call.stream and dialect.priority in call.route.priority:
            self._watch_order(run)
        if is_foreign(call, dialect):
            post = partial(self._post, run, call, headers)
            return await tokenized(post, decode(body), self.facts.context_tokens(pool.model))
        return await self._send(run, call, call.route.url(run.endpoint), headers, body)

    async def _send(
        self, run: Run, call: ParsedCall, url: str, headers: Headers, body: bytes
    ) -> Answer:
        assert run.plan is not None
        pool = run.plan.pool
        connect_s, first_byte_s = self._patience(run, call)
        try:
            answer = await self.client.send(
                "POST", url, headers, body, connect_s=connect_s, first_byte_s=first_byte_s
            )
        except TransportError as error:
            self._broke(run, error, cut_short=connect_s < pool.timeouts.connect)
            raise failure(error, run) from error
        if answer.status == 200:
            return answer  # what is in it is the relay's to see: `accepted`, `let_down`
        self._heard(pool.model, run.endpoint, heard(answer.status))
        raise await self._refusal(answer, DIALECTS[pool.engine], connect_s, call.route)

    async def _post(
        self, run: Run, call: ParsedCall, headers: Headers, path: str, body: dict[str, Any]
    ) -> Any:
        """What an answer of JSON holds; None where it is none."""
        url = run.endpoint.removesuffix("/v1") + path
        answer = await self._send(run, call, url, headers, encoded(body))
        left = max(0.0, run.deadline - asyncio.get_running_loop().time())
        try:
            return decode(await read_short(answer, left, MOST_BYTES))
        except TransportError as error:
            raise failure(error, run) from error

    def accepted(self, run: Run) -> None:
        """What an engine answered is an answer, as far as it has come."""
        self._heard(run.model, run.endpoint, "answered")

    def let_down(self, run: Run, error: ApiError) -> None:
        """An engine answered with 200, but with nothing that could be passed on."""
        what: Heard = "full" if error.outcome is Outcome.OVERLOADED else "failed"
        self._heard(run.model, run.endpoint, what)

    def _watch_order(self, run: Run) -> None:
        """A whole answer comes at its end, which says nothing of the order."""
        assert run.plan is not None
        assert run.place is not None
        clock = asyncio.get_running_loop().time
        stream = Pending(
            priority=run.place.lane.engine_priority,
            asked_at=clock(),
            prompt_tokens=run.plan.estimate.prompt_tokens,
        )
        key = run.model, run.endpoint
        run.leave_queue()  # of the endpoint before
        run.pending = stream
        self.order.ask(key, stream)
        run.begun = lambda: self.order.begin(key, stream, clock())

    def _broke(self, run: Run, error: TransportError, *, cut_short: bool) -> None:
        """What a failed connection says of the endpoint; one that was only given little time, or
        that is slow, says nothing."""
        if isinstance(error, httpx.ConnectError) or (
            isinstance(error, httpx.ConnectTimeout) and not cut_short
        ):
            self._unreachable(run.model, run.endpoint)
        elif not isinstance(error, httpx.TimeoutException):
            self._heard(run.model, run.endpoint, "failed")

    def _patience(self, run: Run, call: ParsedCall) -> tuple[float, float]:
        """For the connection, and for the answer's first byte: within the time of the whole call,
        of which another endpoint may have used up some."""
        assert run.plan is not None
        limits, now = run.plan.pool.timeouts, asyncio.get_running_loop().time()
        left = run.deadline - now
        if left <= 0:
            raise too_slow(run)
        # A whole answer has no first token to see: its head comes when all is done.
        run.first_by = now + limits.first_token if call.stream else run.deadline
        return min(limits.connect, left), min(run.first_by - now, left)

    def key_header(self, pool: PoolPolicy) -> Headers:
        value = self._authorization.get(pool.model)
        return [] if value is None else [(b"authorization", value)]

    async def _refusal(
        self, answer: Answer, dialect: Dialect, patience_s: float, route: Route
    ) -> ApiError:
        try:
            said = read_body(await read_short(answer, patience_s), dialect).error
        except TransportError:
            said = None
        if answer.status in NOT_THERE and not (said and "model" in said.message.lower()):
            return missing(route, answer.status)
        return refusal(answer.status, said, first(answer.headers, b"retry-after"))


def heard(status: int) -> Heard:
    """501 is an engine that lacks an endpoint, not one that failed."""
    if status in FULL:
        return "full"
    return "failed" if status >= 500 and status not in NOT_THERE else "answered"


def missing(route: Route, status: int) -> ApiError:
    """The engine has no such endpoint: its model is of another kind, or it never learnt it."""
    return ApiError(
        Outcome.ENGINE_ERROR,
        f"The engine of this model does not serve {route.path} (HTTP {status}). "
        "Ask your platform team which models do.",
        headers=[FROM_ENGINE, (b"x-should-retry", b"false")],
    )


def refusal(status: int, said: EngineError | None, retry_after: bytes = b"") -> ApiError:
    """What an engine's status means for the caller."""
    words = said.message if said else f"HTTP {status}"
    if status in FULL:
        wait_s = _seconds(retry_after)
        return EngineFailed(
            Outcome.OVERLOADED,
            f"Every engine of this model is full at the moment. {come_back(wait_s)}",
            retry_after_s=wait_s,
            headers=[FROM_ENGINE],
        )
    if status in (400, 413, 422):
        too_long = is_about_length(said) if said else False
        outcome = Outcome.CONTEXT_LENGTH_EXCEEDED if too_long else Outcome.INVALID_REQUEST
        return ApiError(outcome, words, param=said.param if said else None, headers=[FROM_ENGINE])
    if status >= 500:
        return EngineFailed(Outcome.ENGINE_ERROR, f"The engine failed (HTTP {status}).")
    # 401, 403, 404: the pool is set up wrongly, which is not the caller's doing.
    return ApiError(Outcome.ENGINE_ERROR, f"The engine refused the gateway's call (HTTP {status}).")


def is_about_length(said: EngineError) -> bool:
    """OpenAI's code and vLLM's parameter; llama.cpp's type; else the words that all have."""
    return (
        said.code == "context_length_exceeded"
        or said.param == "input_tokens"
        or said.type == "exceed_context_size_error"
        or "context length" in said.message
    )


def told_refusal(said: EngineError) -> ApiError:
    """A stream that began with an error, or an error under a 200: its code, else its type, is what
    the status would have been."""
    code = int(said.code) if said.code.isdecimal() else STATUS_OF.get(said.type, 500)
    return refusal(code if 400 <= code <= 599 else 500, said)


def failure(error: TransportError, run: Run) -> ApiError:
    """A connection that failed, before or in the middle of an answer."""
    if isinstance(error, httpx.ReadTimeout | httpx.WriteTimeout):
        return too_slow(run)
    return EngineFailed(Outcome.ENGINE_ERROR, "The engine could not be reached or broke off.")


def too_slow(run: Run) -> ApiError:
    """Names the time limit that ended it: the first of them that is over."""
    assert run.plan is not None
    limits, now = run.plan.pool.timeouts, asyncio.get_running_loop().time() + EARLY_S
    if now >= run.deadline:
        said = f"its answer was not complete within {limits.total:g} s (timeouts.total)"
    elif run.first_at is None and now >= run.first_by:
        said = f"nothing came within {limits.first_token:g} s (timeouts.first_token)"
    else:
        said = f"it fell silent for {limits.idle:g} s (timeouts.idle)"
    return ApiError(Outcome.ENGINE_TIMEOUT, f"The engine took too long: {said}.")


def _seconds(text: bytes) -> float | None:
    try:
        wait_s = float(text) if text else None
    except ValueError:
        return None
    return wait_s if wait_s is not None and isfinite(wait_s) else None
