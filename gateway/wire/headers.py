"""Which headers cross the gateway, and what ours mean. Raw ASGI lists in, raw lists out.

1. Both ways only what is listed passes: hop-by-hop headers, credentials, cookies, forwarded-for,
   identity and priority headers of callers, and an engine's own limits never do (case R32). Nor
   does what `Connection` names, which is for one hop only (RFC 9110, section 7.6.1).
2. The request id is the gateway's, or that of a proxy which the operator named (`gateway.peers`);
   never a caller's.
3. A header that policy reads and that is given twice with two values is refused, not picked from.
4. No error text repeats a key.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable

import msgspec

from gateway.errors import ApiError, Outcome, invalid
from gateway.peers import ID
from metering.core.hold import RateState

Header = tuple[bytes, bytes]
Headers = list[Header]

# No accept-encoding: a compressed stream could not be metered.
_TO_ENGINE = frozenset(
    {
        *(b"accept", b"user-agent", b"traceparent", b"tracestate"),
        *(b"anthropic-version", b"anthropic-beta"),
    }
)
_TO_CALLER = frozenset(
    {
        b"content-type",
        b"cache-control",
        b"retry-after",
        b"retry-after-ms",
        b"x-should-retry",
        b"openai-processing-ms",
        b"openai-version",
    }
)
_READ = frozenset(
    {
        b"authorization",
        b"x-api-key",
        b"x-fairlane-lane",
        b"x-fairlane-interaction",
    }
)
_REQUESTS, _TOKENS = (
    tuple(b"x-ratelimit-%b-%b" % (part, unit) for part in (b"limit", b"remaining", b"reset"))
    for unit in (b"requests", b"tokens")
)
_USUAL = (b"keep-alive", b"close")  # a Connection that names no header
MAX_KEY_BYTES = 512
_LANE = re.compile(rb"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_LANE_TAKES = "a name of up to 64 letters, digits and . _ - signs"
_ID_TAKES = "up to 128 letters, digits and . _ - : / @ + = signs"


class Asked(msgspec.Struct, frozen=True):
    """What a request's headers say to us; empty texts where they say nothing."""

    key: bytes
    lane: str
    interaction: str
    to_engine: Headers


def read(raw: Iterable[Header]) -> Asked:
    """One pass over a request's headers, names lower-case as ASGI gives them.

    Raises:
        ApiError: invalid_api_key (none, or two different ones), invalid_request.
    """
    passed: Headers = []
    found: dict[bytes, bytes] = {}
    keys: set[bytes] = set()
    hop: set[bytes] = set()
    for name, value in raw:
        if name in _TO_ENGINE:
            passed.append((name, value))
        elif name in _READ:
            if name in (b"authorization", b"x-api-key"):
                keys.add(_secret(name, value.strip()))
            elif found.setdefault(name, value) != value:
                raise invalid(f"{name.decode()} is given twice", name.decode())
        elif name == b"connection" and value.lower() not in _USUAL:
            hop |= _names(value)
    return Asked(
        _one_key(keys),
        _plain(found, b"x-fairlane-lane", _LANE, _LANE_TAKES) if found else "",
        _plain(found, b"x-fairlane-interaction", ID, _ID_TAKES) if found else "",
        [header for header in passed if header[0] not in hop] if hop else passed,
    )


def key(raw: Iterable[Header]) -> bytes:
    """Only the key, when `read` found fault with something else.

    Raises:
        ApiError: invalid_api_key.
    """
    named = (b"authorization", b"x-api-key")
    return _one_key({_secret(name, value.strip()) for name, value in raw if name in named})


def to_engine(asked: Asked, request_id: str, policy: Iterable[Header] = ()) -> Headers:
    """What the engine gets: what may pass, our id, and what policy adds (see `rewrite`). The body
    was read as JSON whatever the caller called it (`curl -d` calls it a form), and goes as JSON."""
    ours = ((b"content-type", b"application/json"), (b"x-request-id", request_id.encode()))
    return [*asked.to_engine, *ours, *policy]


def to_caller(raw: Iterable[Header]) -> Headers:
    """What of an engine's answer passes; the framing and our own headers are the gateway's."""
    passed: Headers = []
    hop: set[bytes] = set()
    for key, value in raw:
        name = key.lower()
        if name in _TO_CALLER:
            passed.append((name, value))
        elif name == b"connection" and value.lower() not in _USUAL:
            hop |= _names(value)
    return [header for header in passed if header[0] not in hop] if hop else passed


def first(raw: Iterable[Header], wanted: bytes) -> bytes:
    """The first value of an engine's header, empty where there is none; `wanted` in lower case."""
    for name, value in raw:
        if name.lower() == wanted:
            return value
    return b""


def ratelimit_headers(rates: RateState) -> Headers:
    """OpenAI's six, those of limits that the tenant has."""
    return [
        *_limit(_REQUESTS, rates.limit_requests, rates.remaining_requests, rates.reset_requests_s),
        *_limit(_TOKENS, rates.limit_tokens, rates.remaining_tokens, rates.reset_tokens_s),
    ]


def duration(seconds: float) -> bytes:
    """As OpenAI writes it, rounded up so that nobody comes too early: 12ms, 8.64s, 6m0s, 1h0m5s."""
    if not 0 < seconds < math.inf:
        return b"0s"
    ms = math.ceil(seconds * 1000 - 1e-6)  # 2.007 * 1000 is a little over 2007
    if ms < 1000:
        return b"%dms" % max(1, ms)
    minutes, ms = divmod(ms, 60_000)
    hours, minutes = divmod(minutes, 60)
    text = b"%gs" % (ms / 1000)
    if hours:
        return b"%dh%dm%s" % (hours, minutes, text)
    return b"%dm%s" % (minutes, text) if minutes else text


def _limit(
    names: tuple[bytes, ...], limit: int | None, left: int | None, reset_s: float
) -> Headers:
    if limit is None:
        return []
    values = (b"%d" % limit, b"%d" % max(0, left or 0), duration(reset_s))
    return list(zip(names, values, strict=True))


def _names(connection: bytes) -> set[bytes]:
    return {name.strip().lower() for name in connection.split(b",")}


def _secret(name: bytes, value: bytes) -> bytes:
    if name == b"x-api-key":
        return value
    scheme, _, secret = value.partition(b" ")
    return secret.strip() if scheme.lower() == b"bearer" else b""


def _one_key(keys: set[bytes]) -> bytes:
    keys.discard(b"")
    if not keys:
        hint = "send it as `Authorization: Bearer KEY` or as `x-api-key: KEY`"
        raise ApiError(Outcome.INVALID_API_KEY, f"no API key was given; {hint}")
    if len(keys) > 1:
        raise ApiError(Outcome.INVALID_API_KEY, "two different API keys were given; send one")
    key = keys.pop()
    if len(key) > MAX_KEY_BYTES:
        raise ApiError(Outcome.INVALID_API_KEY, "this is not an API key of this gateway")
    return key


def _plain(found: dict[bytes, bytes], name: bytes, form: re.Pattern[bytes], takes: str) -> str:
    value = found.get(name, b"").strip()
    if value and not form.fullmatch(value):
        where = name.decode()
        raise invalid(f"{where} takes {takes}", where)
    return value.decode()
