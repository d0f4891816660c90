"""What whole answers of the routes beside chat and completions say about themselves. Never raises.

The bulk of what generates nothing (vectors, lists of token ids) is skipped, not read: an answer of
megabytes holds one number that matters.
"""

from __future__ import annotations

from typing import Any

import msgspec

from gateway.dialects import Dialect
from gateway.wire.usage import (
    Report,
    Usage,
    count_in,
    decode,
    nothing_in,
    read_error,
    read_usage,
)

TOOL_CALLS = ("function_call", "custom_tool_call")
TOKENS_A_CHARGE = 100  # counting this many costs an engine about what reading one does


class _Failed(msgspec.Struct):
    """An error's members, in each of its forms."""

    error: Any = None
    object: Any = None
    message: Any = None
    type: Any = None
    param: Any = None
    code: Any = None


class _Pooled(_Failed):
    usage: Any = None


class _Counted(_Failed):
    count: Any = None
    tokens: msgspec.Raw = msgspec.Raw()


_pooled = msgspec.json.Decoder(_Pooled)
_counted = msgspec.json.Decoder(_Counted)


def of_pooling(data: bytes, dialect: Dialect) -> Report:
    """Of embeddings, rerank and score: a prompt and no output. Some tell the total only."""
    body = _members(_pooled, data)
    if not isinstance(body, dict):
        return nothing_in(body)
    usage = body.get("usage")
    if isinstance(usage, dict):
        usage = {**usage, "completion_tokens": count_in(usage, "completion_tokens") or 0}
        if count_in(usage, "prompt_tokens") is None:
            usage.pop("prompt_tokens", None)
    return Report(read_usage(usage), True, {}, read_error(body))


def of_tokenize(data: bytes, dialect: Dialect) -> Report:
    """The charge for what was counted: see `TOKENS_A_CHARGE`. SGLang counts each of several;
    llama.cpp tells the tokens only."""
    body = _members(_counted, data)
    if not isinstance(body, dict):
        return nothing_in(body)
    given = body.get("count")
    if given is None and isinstance(tokens := _read(body.get("tokens")), list):
        given = len(tokens)
    each = [{"count": one} for one in given] if isinstance(given, list) else [{"count": given}]
    counts = [count_in(one, "count") for one in each]
    known = [count for count in counts if count is not None]
    if not known or len(known) < len(counts):
        return Report(None, True, {}, read_error(body))
    return Report(Usage(charged(sum(known), TOKENS_A_CHARGE), 0, 0), True, {}, None)


def _read(member: Any) -> Any:
    return decode(bytes(member)) if isinstance(member, msgspec.Raw) and bytes(member) else member


def charged(tokens: int, share: int) -> int:
    """One token for each `share` of them begun, and never none."""
    return max(1, -(-tokens // share))


def _members(decoder: msgspec.json.Decoder[Any], data: bytes) -> Any:
    """Of an object; what else it is, as it is."""
    try:
        return msgspec.structs.asdict(decoder.decode(data))
    except (ValueError, RecursionError):  # NaN for one: JSON as engines send it
        return decode(data)


def of_messages(data: bytes, dialect: Dialect) -> Report:
    """Of Anthropic's form."""
    body = decode(data)
    if not isinstance(body, dict):
        return nothing_in(body)
    return Report(messages_usage(body.get("usage")), True, message_reasons(body), read_error(body))


def messages_usage(given: Any) -> Usage | None:
    """Anthropic's `input_tokens` are those that no cache had; a prompt is all three together."""
    if not isinstance(given, dict):
        return None
    fresh, completion = count_in(given, "input_tokens"), count_in(given, "output_tokens")
    if fresh is None or completion is None:
        return None
    read = count_in(given, "cache_read_input_tokens") or 0
    written = count_in(given, "cache_creation_input_tokens") or 0
    return Usage(fresh + read + written, read, completion)


def message_reasons(given: Any) -> dict[int, str]:
    reason = given.get("stop_reason") if isinstance(given, dict) else None
    return {0: reason} if isinstance(reason, str) and reason else {}


def of_responses(data: bytes, dialect: Dialect) -> Report:
    body = decode(data)
    if not isinstance(body, dict):
        return nothing_in(body)
    usage, reasons = response_usage(body.get("usage")), response_reasons(body)
    return Report(usage, True, reasons, read_error(body))


def response_usage(given: Any) -> Usage | None:
    """`input_tokens` holds the cached ones, `output_tokens` those of reasoning."""
    if not isinstance(given, dict):
        return None
    prompt, completion = count_in(given, "input_tokens"), count_in(given, "output_tokens")
    if prompt is None or completion is None:
        return None
    details = given.get("input_tokens_details")
    cached = count_in(details, "cached_tokens") if isinstance(details, dict) else None
    return Usage(prompt, min(prompt, cached or 0), completion)


def response_reasons(response: dict[str, Any]) -> dict[int, str]:
    """In the words of chat completions, since a response says it in three places."""
    status = response.get("status")
    if status == "completed":
        return {0: "tool_calls" if _calls_a_tool(response.get("output")) else "stop"}
    if status == "incomplete":
        details = response.get("incomplete_details")
        reason = details.get("reason") if isinstance(details, dict) else None
        return {0: reason if isinstance(reason, str) else "length"}
    return {0: "error"} if status in ("failed", "cancelled") else {}


def _calls_a_tool(output: Any) -> bool:
    items = output if isinstance(output, list) else []
    return any(isinstance(item, dict) and item.get("type") in TOOL_CALLS for item in items)
