"""What a caller may send, checked. Fields that are not named here are accepted and ignored."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, TypeVar

import msgspec

from scheduling.simulate.server.errors import ApiError, bad_request

MAX_CHOICES = 128
INT64 = (-(2**63), 2**63 - 1)
_OPENAI = (
    "model messages prompt suffix best_of echo stream stream_options max_tokens "
    "max_completion_tokens n stop seed temperature top_p tools tool_choice parallel_tool_calls "
    "functions function_call response_format logprobs top_logprobs logit_bias frequency_penalty "
    "presence_penalty user metadata modalities audio prediction reasoning_effort service_tier "
    "store verbosity web_search_options safety_identifier prompt_cache_key "
    "system stop_sequences top_k thinking input dimensions encoding_format query documents top_n "
    "text_1 text_2 instructions max_output_tokens text output_config"
)
OPENAI_FIELDS = frozenset(_OPENAI.split())

Number = Annotated[int, msgspec.Meta(ge=INT64[0], le=INT64[1])]
Role = Literal["system", "developer", "user", "assistant", "tool", "function"]


class StreamOptions(msgspec.Struct):
    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None


class Function(msgspec.Struct):
    name: Annotated[str, msgspec.Meta(min_length=1)]
    description: str | None = None
    parameters: dict[str, Any] | None = None


class Tool(msgspec.Struct):
    function: Function
    type: Literal["function"] = "function"


class FunctionName(msgspec.Struct):
    name: str


class ToolChoice(msgspec.Struct):
    function: FunctionName
    type: Literal["function"] = "function"


class JsonSchema(msgspec.Struct):
    schema: dict[str, Any] | None = None


class ResponseFormat(msgspec.Struct):
    type: Literal["text", "json_object", "json_schema"] = "text"
    json_schema: JsonSchema | None = None


class SchemaFormat(msgspec.Struct):
    """As it is written on the routes that are not chat."""

    type: Literal["text", "json_object", "json_schema"] = "text"
    schema: dict[str, Any] | None = None


class Formatted(msgspec.Struct):
    format: SchemaFormat | None = None


def as_response_format(given: Formatted | None) -> ResponseFormat | None:
    if given is None or given.format is None:
        return None
    return ResponseFormat(given.format.type, JsonSchema(given.format.schema))


class Message(msgspec.Struct):
    role: Role
    content: str | list[dict[str, Any]] | None = None
    tool_calls: list[dict[str, Any]] | None = None


class Common(msgspec.Struct, kw_only=True):
    model: str | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    max_tokens: Number | None = None
    min_tokens: Number | None = None
    n: Number | None = None
    seed: Number | None = None
    priority: Number | None = None
    cache_salt: str | None = None
    ignore_eos: bool | None = None
    request_id: str | None = None


class ChatRequest(Common, kw_only=True):
    messages: list[Message]
    max_completion_tokens: Number | None = None
    tools: list[Tool] | None = None
    tool_choice: Literal["none", "auto", "required"] | ToolChoice | None = None
    add_generation_prompt: bool = True
    response_format: ResponseFormat | None = None


class CompletionRequest(Common, kw_only=True):
    prompt: str | list[str | Number | list[Number]]  # one or many, as text or as token ids


class TokenizeRequest(msgspec.Struct, kw_only=True):
    """Either a prompt or messages, as vLLM's two forms."""

    model: str | None = None
    prompt: str | None = None
    messages: list[Message] | None = None
    tools: list[Tool] | None = None
    add_generation_prompt: bool = True
    return_token_strs: bool | None = None


class DetokenizeRequest(msgspec.Struct, kw_only=True):
    model: str | None = None
    tokens: list[Annotated[int, msgspec.Meta(ge=0)]]


T = TypeVar("T")
_PATH = re.compile(r" - at `\$\.?(.*)`$")


def read(kind: type[T], content_type: str, body: bytes) -> T:
    if content_type.partition(";")[0].strip().lower() != "application/json":
        raise ApiError(400, "Unsupported Media Type: Only 'application/json' is allowed")
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.ValidationError as error:
        path = _PATH.search(str(error))
        param = f"body.{path[1]}" if path and path[1] else "body"
        raise ApiError(400, f"1 validation error: {error}", param=param) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ApiError(400, f"JSON decode error: {error}") from None


def check_strictly(body: bytes) -> None:
    """As engines do that refuse fields they do not know."""
    unknown = sorted(msgspec.json.decode(body, type=dict[str, msgspec.Raw]).keys() - OPENAI_FIELDS)
    if unknown:
        raise bad_request(f"Unrecognized request argument supplied: {unknown[0]}", unknown[0])


def check_common(asked: Common) -> None:
    if asked.stream_options is not None and not asked.stream:
        raise bad_request(
            "Stream options can only be defined when `stream=True`.", "stream_options"
        )
    if asked.n is not None and not 1 <= asked.n <= MAX_CHOICES:
        raise bad_request(f"n must be between 1 and {MAX_CHOICES}, got {asked.n}.", "n")
    if asked.cache_salt is not None and not asked.cache_salt:
        raise bad_request("Parameter 'cache_salt' must be a non-empty string.", "cache_salt")
    for name in ("max_tokens", "max_completion_tokens"):
        most = getattr(asked, name, None)
        if most is not None and most < 1:
            raise bad_request(f"{name} must be at least 1, got {most}.", name)


def priority_of(asked: Common, header: str | None) -> int:
    """vLLM's rule: the header wins over the body, what is no whole number in it is ignored, and
    what is too large for its scheduler breaks the request with an empty message."""
    given = asked.priority or 0
    if header is None:
        return given
    try:
        given = int(header)
    except ValueError:
        return given
    if not INT64[0] <= given <= INT64[1]:
        raise ApiError(500, "", "InternalServerError")
    return given
