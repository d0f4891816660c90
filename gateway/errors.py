"""How a request can end, and what each end looks like from outside.

1. A request ends in exactly one `Outcome`; `ANSWERS` has a row for each, and a test holds that.
2. An outcome's value is the contract's error code, and its label in metrics and logs.
3. What says "come back later" says when: `retry-after` is whole seconds and at least 1, because
   clients read 0 as "at once" and text as nothing.
4. A quota that is used up also says `x-should-retry: false`, since the official clients retry
   every 429 by its status alone (engines.md, section 4). So does a wait past `LONGEST_SLEEP_S`:
   anthropic's and openai's for Node would sleep it out, a day too, and their caller hears nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Any

import msgspec

from metering.core.record import FinishReason

LONGEST_WAIT_S = 367 * 86_400.0  # past the longest budget window
LONGEST_SLEEP_S = 120.0  # a client may wait so long by itself: where openai's for Python stops


class Outcome(StrEnum):
    OK = "ok"
    INVALID_REQUEST = "invalid_request"
    CONTEXT_LENGTH_EXCEEDED = "context_length_exceeded"
    OUTPUT_LIMIT_EXCEEDED = "output_limit_exceeded"
    INVALID_API_KEY = "invalid_api_key"
    TENANT_SUSPENDED = "tenant_suspended"
    MODEL_NOT_ALLOWED = "model_not_allowed"
    LANE_NOT_ALLOWED = "lane_not_allowed"
    MODEL_NOT_FOUND = "model_not_found"
    REQUEST_TOO_LARGE = "request_too_large"
    RATE_LIMIT_EXCEEDED = "rate_limit_exceeded"
    INSUFFICIENT_QUOTA = "insufficient_quota"
    CLIENT_CLOSED = "client_closed"
    ENGINE_ERROR = "engine_error"
    ENGINE_TIMEOUT = "engine_timeout"
    OVERLOADED = "overloaded"
    QUEUE_TIMEOUT = "queue_timeout"
    NO_ENDPOINT = "no_endpoint"
    STATE_UNAVAILABLE = "state_unavailable"

    @property
    def answer(self) -> Answer:
        return ANSWERS[self]


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    openai_type: str
    anthropic_type: str
    finish_reason: FinishReason  # in the usage record; an engine's own reason goes before `stop`
    console: str
    retry: bool = False  # carries retry-after


def _bad_request(status: int, console: str, anthropic: str = "invalid_request_error") -> Answer:
    return Answer(status, "invalid_request_error", anthropic, "rejected", console)


def _engine(status: int, anthropic: str, finish_reason: FinishReason, console: str) -> Answer:
    return Answer(status, "server_error", anthropic, finish_reason, console)


def _unavailable(console: str, finish_reason: FinishReason = "rejected") -> Answer:
    kind = "service_unavailable_error"
    return Answer(503, kind, "overloaded_error", finish_reason, console, retry=True)


ANSWERS: Mapping[Outcome, Answer] = MappingProxyType(
    {
        Outcome.OK: Answer(200, "", "", "stop", "Served"),
        Outcome.INVALID_REQUEST: _bad_request(400, "Malformed request"),
        Outcome.CONTEXT_LENGTH_EXCEEDED: _bad_request(400, "Input too long"),
        Outcome.OUTPUT_LIMIT_EXCEEDED: _bad_request(400, "Output limit too high"),
        Outcome.INVALID_API_KEY: _bad_request(401, "Key not accepted", "authentication_error"),
        Outcome.TENANT_SUSPENDED: _bad_request(403, "Tenant suspended", "permission_error"),
        Outcome.MODEL_NOT_ALLOWED: _bad_request(403, "Model not allowed", "permission_error"),
        Outcome.LANE_NOT_ALLOWED: _bad_request(403, "Lane not allowed", "permission_error"),
        Outcome.MODEL_NOT_FOUND: _bad_request(404, "Unknown model", "not_found_error"),
        Outcome.REQUEST_TOO_LARGE: _bad_request(413, "Body too large", "request_too_large"),
        Outcome.RATE_LIMIT_EXCEEDED: Answer(
            429, "rate_limit_error", "rate_limit_error", "throttled", "Limit reached", retry=True
        ),
        Outcome.INSUFFICIENT_QUOTA: Answer(
            429, "insufficient_quota", "rate_limit_error", "throttled", "Budget used up", retry=True
        ),
        Outcome.CLIENT_CLOSED: Answer(
            499, "client_closed_request", "api_error", "cancelled", "Caller went away"
        ),
        Outcome.ENGINE_ERROR: _engine(502, "api_error", "error", "Engine failed"),
        Outcome.ENGINE_TIMEOUT: _engine(504, "timeout_error", "timeout", "Engine too slow"),
        Outcome.OVERLOADED: _unavailable("Shed under overload"),
        Outcome.QUEUE_TIMEOUT: _unavailable("Waited too long", "timeout"),
        Outcome.NO_ENDPOINT: _unavailable("No endpoint in service"),
        Outcome.STATE_UNAVAILABLE: _unavailable("Shared state out of reach"),
    }
)


class ApiError(Exception):
    """Ends a request; whoever answers turns it into the dialect of the route.

    `retry_after_s` is used only where the outcome says when to come back; 1 second when unknown.
    `extra` are raw response headers that belong to this answer, x-ratelimit ones for example.
    `limit` is the tenant's limit that decided, for the record.
    """

    def __init__(
        self,
        outcome: Outcome,
        message: str,
        param: str | None = None,
        retry_after_s: float | None = None,
        headers: Iterable[tuple[bytes, bytes]] = (),
        limit: str = "",
    ) -> None:
        super().__init__(message)
        self.outcome = outcome
        self.message = message
        self.param = param
        self.retry_after_s = retry_after_s
        self.extra = tuple(headers)
        self.limit = limit

    @property
    def status(self) -> int:
        return self.outcome.answer.status


def come_back(wait_s: float | None) -> str:
    """As `retry-after` says it."""
    return f"Come back in {_whole(wait_s)} s."


def invalid(message: str, param: str | None = None) -> ApiError:
    return ApiError(Outcome.INVALID_REQUEST, message, param)


def openai_body(error: ApiError) -> bytes:
    return _encode({"error": _openai_error(error)})


def anthropic_body(error: ApiError, request_id: str | None = None) -> bytes:
    detail = {"type": error.outcome.answer.anthropic_type, "message": error.message}
    return _encode({"type": "error", "error": detail, "request_id": request_id or None})


def sse_error_event(error: ApiError) -> bytes:
    """The last event of a stream that broke after its start; no `[DONE]` follows it."""
    return b"data: " + openai_body(error) + b"\n\n"


@dataclass(frozen=True, slots=True)
class Voice:
    """How an error sounds on a route: as a whole answer (with the request's id), and as the last
    event of a stream; what the headers are called that carry the id; and what a path is that is not
    there (Anthropic has a type for it, OpenAI no code)."""

    body: Callable[[ApiError, str], bytes]
    event: Callable[[ApiError], bytes]
    ids: tuple[bytes, ...] = (b"x-request-id",)
    no_path: Outcome = Outcome.INVALID_REQUEST


OPENAI = Voice(lambda error, _: openai_body(error), sse_error_event)
RESPONSES = Voice(
    lambda error, _: openai_body(error),
    lambda error: b"event: error\ndata: " + _responses_error(error) + b"\n\n",
)
ANTHROPIC = Voice(
    anthropic_body,
    lambda error: b"event: error\ndata: " + anthropic_body(error) + b"\n\n",
    ids=(b"x-request-id", b"request-id"),  # the official client reads the second
    no_path=Outcome.MODEL_NOT_FOUND,
)


def _responses_error(error: ApiError) -> bytes:
    """As a typed event, and with the object that clients of chat completions look for."""
    said = _openai_error(error)
    flat = {"type": "error", "code": said["code"], "message": said["message"]}
    return _encode({**flat, "param": said["param"], "error": said})


def headers(error: ApiError) -> list[tuple[bytes, bytes]]:
    """What this error adds to an answer: when to come back, whether to, and its own extras."""
    found = list(error.extra)
    final = error.outcome is Outcome.INSUFFICIENT_QUOTA
    if error.outcome.answer.retry:
        wait = _bounded(error.retry_after_s)
        final = final or wait > LONGEST_SLEEP_S
        found.append((b"retry-after", b"%d" % _whole(wait)))
        found.append((b"retry-after-ms", b"%d" % max(1, math.ceil(wait * 1000))))
    if final:
        found.append((b"x-should-retry", b"false"))
    if error.outcome is Outcome.INVALID_API_KEY:
        found.append((b"www-authenticate", b"Bearer"))
    return found


def _whole(wait_s: float | None) -> int:
    return max(1, math.ceil(_bounded(wait_s)))


def _bounded(wait_s: float | None) -> float:
    if wait_s is None or not wait_s >= 0:  # also not-a-number
        return 1.0
    return min(wait_s, LONGEST_WAIT_S)


def _openai_error(error: ApiError) -> dict[str, Any]:
    return {
        "message": error.message,
        "type": error.outcome.answer.openai_type,
        "param": error.param,
        "code": error.outcome.value,
    }


def _encode(body: dict[str, Any]) -> bytes:
    # A message may quote bytes that came in as surrogates (header text); never fail on those.
    try:
        return msgspec.json.encode(body)
    except UnicodeEncodeError:
        return msgspec.json.encode(_without_surrogates(body))


def _without_surrogates(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_surrogates(item) for key, item in value.items()}
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else value
