"""What an engine's answer says about itself: usage, finish reasons, errors. Never raises.

1. A number that cannot be a token count (negative, huge, a text, null) is no number. Usage counts
   only when prompt and completion are both known, given or as total minus the other.
2. `prompt` contains `cached`, as OpenAI counts.
3. Where an engine tells the usage of one choice only (llama.cpp with n > 1), the others are taken
   to be as long, and the report says that it is not exact.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple, cast

import msgspec

from gateway.dialects import Dialect
from metering.core.record import FinishReason

MAX_TOKENS = 10**9  # no request is that long; past it the number is broken
MAX_MESSAGE_CHARS = 2000

_FINISH: dict[str, FinishReason] = {
    "stop": "stop",
    "length": "length",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
    "content_filter": "content_filter",
    "abort": "error",
    "error": "error",
    "max_output_tokens": "length",  # responses'
    # Anthropic's; `end_turn`, `stop_sequence` and `pause_turn` are stops
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "tool_calls",
    "refusal": "content_filter",
}
_decoder = msgspec.json.Decoder()


class Usage(NamedTuple):
    prompt: int
    cached: int  # contained in prompt
    completion: int


class EngineError(NamedTuple):
    message: str
    type: str = ""
    param: str | None = None
    code: str = ""


class Report(NamedTuple):
    usage: Usage | None
    exact: bool
    finish_reasons: dict[int, str]  # by choice
    error: EngineError | None
    readable: bool = True  # it is JSON, and an object or a list

    @property
    def is_refusal(self) -> bool:
        """An error stands where the answer should: nothing tells of work that was done."""
        ended_well = any(reason != "error" for reason in self.finish_reasons.values())
        return self.error is not None and self.usage is None and not ended_well


def decode(data: bytes) -> Any:
    """JSON as engines send it, lone surrogates, NaN and half a character included; None when it is
    not JSON."""
    try:
        return _decoder.decode(data)
    except (ValueError, RecursionError):
        pass
    try:
        return json.loads(data.decode("utf-8-sig", "replace"))
    except (ValueError, RecursionError):
        return None


def read_body(data: bytes, dialect: Dialect) -> Report:
    """Of a whole answer, whatever its status."""
    body = decode(data)
    if not isinstance(body, dict):
        return nothing_in(body)
    usage, reasons = read_usage(body.get("usage")), finish_reasons(body)
    exact = True
    if usage and dialect.usage_per_choice and (n := len(choices(body))) > 1:
        usage, exact = usage._replace(completion=usage.completion * n), False
    return Report(usage, exact, reasons, read_error(body))


def nothing_in(body: Any) -> Report:
    """Of what is no object: a list may be an answer, of texts' ranks for one."""
    return Report(None, True, {}, None, readable=isinstance(body, list))


def read_usage(given: Any) -> Usage | None:
    if not isinstance(given, dict):
        return None
    prompt, completion = count_in(given, "prompt_tokens"), count_in(given, "completion_tokens")
    total = count_in(given, "total_tokens")
    if prompt is None and completion is not None and total is not None:
        prompt = total - completion
    if completion is None and prompt is not None and total is not None:
        completion = total - prompt
    if prompt is None or completion is None or prompt < 0 or completion < 0:
        return None
    return Usage(prompt, min(prompt, _cached(given)), completion)


def finish_reasons(body: dict[str, Any]) -> dict[int, str]:
    found = {}
    for place, choice in enumerate(choices(body)):
        reason = choice.get("finish_reason")
        if isinstance(reason, str) and reason:
            found[choice_index(choice, place)] = reason
    return found


def finish_reason(reasons: dict[int, str]) -> FinishReason:
    """The record's word for how the first choice ended; `stop` for what is unknown."""
    return _FINISH.get(reasons[min(reasons)], "stop") if reasons else "stop"


def read_error(body: dict[str, Any]) -> EngineError | None:
    """OpenAI's nested form, TGI's text, SGLang's flat form."""
    given = body.get("error")
    if isinstance(given, dict) and given:
        return _error(given)
    if isinstance(given, str) and given:
        return EngineError(given[:MAX_MESSAGE_CHARS], _text(body.get("error_type")))
    if given:
        return EngineError("the engine reported an error")
    return _error(body) if body.get("object") == "error" else None


def choice_index(choice: dict[str, Any], place: int) -> int:
    index = choice.get("index")
    return index if type(index) is int and index >= 0 else place


def _error(given: dict[str, Any]) -> EngineError:
    param = given.get("param")
    return EngineError(
        _text(given.get("message")) or "the engine reported an error",
        _text(given.get("type")),
        param if isinstance(param, str) else None,
        _text(given.get("code")),
    )


def _text(value: Any) -> str:
    """Engines give the HTTP number as `code`, OpenAI gives a text."""
    return str(value)[:MAX_MESSAGE_CHARS] if isinstance(value, str | int) else ""


def choices(body: dict[str, Any]) -> list[dict[str, Any]]:
    given = body.get("choices")
    if not isinstance(given, list):
        return []
    return [cast(dict[str, Any], choice) for choice in given if isinstance(choice, dict)]


def _cached(given: dict[str, Any]) -> int:
    details = given.get("prompt_tokens_details")
    return (count_in(details, "cached_tokens") or 0) if isinstance(details, dict) else 0


def count_in(given: dict[str, Any], name: str) -> int | None:
    """A number of tokens, where it can be one."""
    value = given.get(name)
    return value if type(value) is int and 0 <= value <= MAX_TOKENS else None
