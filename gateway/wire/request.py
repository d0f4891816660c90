"""What a caller asks, read once; and the same request as its engine is to see it.

1. `parse` raises nothing but ApiError, whatever the bytes: a malformed call is refused before it
   takes a slot (case R01).
2. A field that policy does not decide goes to the engine as it came. When none had to change, the
   engine gets the caller's own bytes.
3. `priority` is never the caller's; `cache_salt` is the tenant's, and a caller's own salt can only
   divide it further.
4. Where two spellings of one key could make the engine read another value than policy read, the
   engine gets our reading. A key that differs from one of policy's in its letters' case only is
   refused: engines in Go take it for that key.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import msgspec

from gateway.dialects import DIALECTS, Dialect, engine_priority
from gateway.errors import invalid
from gateway.wire.headers import Headers
from gateway.wire.prompt import MAX_MESSAGES
from gateway.wire.routes import ROUTES, Form, Kind, Route

EngineRequest = tuple[bytes, Headers]

# llm-d's router, and what it was called before: an older one knows only the second.
FLOW_PREFIXES = (b"x-llm-d-inference-", b"x-gateway-inference-")
MAX_MODEL_CHARS = 256
MAX_CHOICES = 128
MAX_BRACKETS = 500_000  # objects and lists; those in texts count too, which code is full of
MAX_OUTPUT_TOKENS = 2**31 - 1
COMPRESSED = (b"\x1f\x8b", b"\x28\xb5\x2f\xfd")  # gzip, zstd: how either begins
# What policy reads, sets or drops, and what it measures.
_POLICYS = frozenset(
    {
        *(name for route in ROUTES.values() for name in route.named),
        *(name for dialect in DIALECTS.values() for name in dialect.dropped),
        *("messages", "prompt", "suffix", "input", "instructions", "system", "tools", "content"),
        *("query", "queries", "documents", "items", "text_1", "text_2", "data_1", "data_2"),
    }
)
_decoder = msgspec.json.Decoder()
_encoder = msgspec.json.Encoder()


class ParsedCall(msgspec.Struct, frozen=True, kw_only=True):
    route: Route
    raw: bytes
    body: dict[str, Any]  # decoded `raw`; never changed
    model: str  # as the caller named it, maybe an alias
    stream: bool
    include_usage: bool  # the caller asked for the usage frame of a stream
    running_usage: bool  # and for usage on every frame
    n: int  # sequences generated for each prompt
    max_output_tokens: int | None  # for each sequence; None: not given
    prompt_bytes: int  # UTF-8 bytes of prompt text, tool schemas included
    prompt_tokens: int  # of token arrays, exact, beside prompt_bytes
    prompts: int  # 1 but for list prompts
    messages: int
    media: int  # parts that are not text: images, audio, video, files
    prefix: int  # stable hash of the leading text, never 0

    @property
    def choices(self) -> int:
        """How many answers come back in one response or stream."""
        return self.n * self.prompts


def parse(kind: Kind, raw: bytes) -> ParsedCall:
    """Read a body of that route.

    Raises:
        ApiError: invalid_request, `param` naming the field.
    """
    route = ROUTES[kind]
    body = _decode(raw)
    _check_spelling(body)
    _check_unset(route, body)
    options = _object(body, "stream_options") if route.stream_options else {}
    stream = route.meter is not None and _flag(body, "stream", "stream")
    include_usage = stream and _flag(options, "include_usage", "stream_options.include_usage")
    running = "continuous_usage_stats"
    prompt = route.prompt(body)
    return ParsedCall(
        route=route,
        raw=raw,
        body=body,
        model=_model(body),
        stream=stream,
        include_usage=include_usage,
        running_usage=include_usage and _flag(options, running, f"stream_options.{running}"),
        n=_largest(body, route.sequences, 1, MAX_CHOICES) or 1,
        max_output_tokens=_max_output(route, body),
        prompt_bytes=prompt.text_bytes,
        prompt_tokens=prompt.tokens,
        prompts=prompt.prompts,
        messages=prompt.messages,
        media=prompt.media,
        prefix=prompt.prefix(),
    )


def rewrite(
    call: ParsedCall,
    dialect: Dialect,
    *,
    priority: int,
    cache_salt: str | None,
    served_model: str,
    max_output_tokens: int | None = None,
    tenant: str = "",
    lane: str = "",
) -> EngineRequest:
    """The body for the engine, and the headers that policy puts beside it.

    `priority` is the lane's, lower first. `cache_salt` None leaves the caller's own. A
    `max_output_tokens` is put in only where the caller gave no bound. `tenant` and `lane` are for
    engines that queue by flow (llm-d).
    """
    route, body = call.route, dict(call.body)
    form = priority_form(dialect, route)
    for name in dialect.dropped & body.keys():
        del body[name]
    body.pop("priority", None)
    if form == "body":
        body["priority"] = engine_priority(dialect, priority)
    if cache_salt is not None and dialect.cache_salt and route.cache_salt:
        body["cache_salt"] = _salt(cache_salt, body.get("cache_salt"))
    if call.stream and route.stream_options:
        body["stream_options"] = _usage_options(call, dialect)
    if route.generates and max_output_tokens is not None and call.max_output_tokens is None:
        body[route.bounds[0]] = max_output_tokens
    body |= route.puts
    body["model"] = served_model
    headers = _headers(dialect, form, priority, tenant, lane)
    if body == call.body and not _ambiguous(call.raw, route):
        return call.raw, headers
    return _encode(body), headers


def priority_form(dialect: Dialect, route: Route) -> Form | None:
    """An engine that reads the header reads the body as well, where an endpoint knows no header."""
    if dialect.priority == "none" or not route.priority:
        return None
    if dialect.priority in route.priority:
        return dialect.priority
    return "body" if dialect.priority == "header" else None


def _headers(dialect: Dialect, form: Form | None, priority: int, tenant: str, lane: str) -> Headers:
    if form == "header":
        return [(b"x-vllm-priority", b"%d" % engine_priority(dialect, priority))]
    if not dialect.flow_headers:
        return []
    flow = ((b"fairness-id", tenant), (b"objective", lane))
    return [
        (prefix + name, quote(value).encode())
        for prefix in FLOW_PREFIXES
        for name, value in flow
        if value
    ]


def _usage_options(call: ParsedCall, dialect: Dialect) -> dict[str, Any]:
    options = dict(call.body.get("stream_options") or {})
    options["include_usage"] = True
    if dialect.running_usage:
        options["continuous_usage_stats"] = True
    return options


def _salt(ours: str, callers: object) -> str:
    return f"{ours}:{callers}" if isinstance(callers, str) and callers else ours


def _ambiguous(raw: bytes, route: Route) -> bool:
    """Whether a key that policy read may stand there twice, plainly or spelt with escapes."""
    return b"\\u00" in raw or any(raw.count(name) > 1 for name in route.decided)


def _encode(body: dict[str, Any]) -> bytes:
    try:
        return _encoder.encode(body)
    except RecursionError:  # decoding was just shallow enough
        raise invalid("the body is nested too deeply") from None


def _decode(raw: bytes) -> dict[str, Any]:
    """Counted first: five million empty lists fit into a body, and would stop the loop, and with
    it every other tenant's calls, for two seconds."""
    if raw.count(b"{") + raw.count(b"[") > MAX_BRACKETS:
        raise invalid(f"the body holds more than {MAX_BRACKETS} opening brackets and braces")
    try:
        body = _decoder.decode(raw)
    except RecursionError:
        raise invalid("the body is nested too deeply") from None
    except ValueError as error:  # msgspec.DecodeError, UnicodeDecodeError
        halved = b"\\ud" in raw or b"\\uD" in raw
        said: object = error
        if "truncated" in str(error) and halved:  # which is what msgspec calls that
            said = "a text may hold half of a surrogate pair"
        elif raw.startswith(COMPRESSED):
            said = "it is compressed, which is not taken here"
        raise invalid(f"the body is not valid JSON: {said}") from None
    if not isinstance(body, dict):
        raise invalid("the body must be a JSON object")
    messages = body.get("messages")
    if isinstance(messages, list) and len(messages) > MAX_MESSAGES:
        raise invalid(f"messages holds more than {MAX_MESSAGES} messages", "messages")
    return body


def _check_spelling(body: dict[str, Any]) -> None:
    names = "".join(body)
    if names.isascii() and names.islower():
        return
    for name in body:
        plain = name.casefold()  # which also knows the signs that Go takes for a k and an s
        if plain != name and plain in _POLICYS:
            raise invalid(f"{name} must be written {plain}", name)


def _check_unset(route: Route, body: dict[str, Any]) -> None:
    for name in route.unset:
        if body.get(name) not in (None, False):
            raise invalid(
                f"{name} is not taken here: nothing of a call is kept once it has ended, since "
                "tenants share the engines. Send the whole conversation in one call.",
                name,
            )


def _model(body: dict[str, Any]) -> str:
    model = body.get("model")
    if not isinstance(model, str) or not model.strip():
        raise invalid("model is missing; it takes the name of a model", "model")
    if len(model) > MAX_MODEL_CHARS:
        raise invalid(f"model is longer than {MAX_MODEL_CHARS} characters", "model")
    return model


def _max_output(route: Route, body: dict[str, Any]) -> int | None:
    most = _largest(body, route.bounds, route.least_bound, MAX_OUTPUT_TOKENS)
    if most is None and route.bound_is_due:
        name = route.bounds[0]
        raise invalid(f"{name} is missing; it takes a whole number from {route.least_bound}", name)
    return most


def _largest(body: dict[str, Any], names: tuple[str, ...], least: int, most: int) -> int | None:
    """Of those that are given, each a whole number."""
    found = None
    for name in names:
        value = body.get(name)
        if value is None:
            continue
        if type(value) is not int or not least <= value <= most:
            raise invalid(f"{name} must be a whole number from {least} to {most}", name)
        if found is None or value > found:
            found = value
    return found


def _flag(body: dict[str, Any], name: str, where: str) -> bool:
    value = body.get(name)
    if value is not None and not isinstance(value, bool):
        raise invalid(f"{where} must be true or false", where)
    return value is True


def _object(body: dict[str, Any], name: str) -> dict[str, Any]:
    value = body.get(name)
    if value is not None and not isinstance(value, dict):
        raise invalid(f"{name} must be an object", name)
    return value or {}
