"""Anthropic's messages: read as a chat, answered in Anthropic's shapes and events."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from scheduling.simulate.server.answers import Text, ToolCall
from scheduling.simulate.server.call import Call, Event
from scheduling.simulate.server.errors import ApiError
from scheduling.simulate.server.wire import (
    ChatRequest,
    Common,
    Formatted,
    Function,
    FunctionName,
    Message,
    Number,
    Tool,
    ToolChoice,
    as_response_format,
)

STOP_REASONS = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use"}
CHOICES: dict[str, Literal["none", "auto", "required"]] = {
    "none": "none",
    "auto": "auto",
    "any": "required",
}
Blocks = str | list[dict[str, Any]]


class Turn(msgspec.Struct):
    role: Literal["user", "assistant", "system"]
    content: Blocks


class AnyTool(msgspec.Struct):
    name: Annotated[str, msgspec.Meta(min_length=1)]
    description: str | None = None
    input_schema: dict[str, Any] | None = None


class AnyChoice(msgspec.Struct):
    type: Literal["auto", "any", "tool", "none"]
    name: str | None = None


class MessagesRequest(Common, kw_only=True):
    max_tokens: Number
    messages: list[Turn]
    system: Blocks | None = None
    tools: list[AnyTool] | None = None
    tool_choice: AnyChoice | None = None
    output_config: Formatted | None = None


def as_chat(asked: MessagesRequest) -> ChatRequest:
    turns = [Turn("system", asked.system)] if asked.system else []
    tools = [Tool(Function(t.name, t.description, t.input_schema)) for t in asked.tools or []]
    return ChatRequest(
        model=asked.model,
        messages=[_message(turn) for turn in [*turns, *asked.messages]],
        max_tokens=asked.max_tokens,
        stream=asked.stream,
        ignore_eos=asked.ignore_eos,
        tools=tools or None,
        tool_choice=_choice(asked.tool_choice),
        response_format=as_response_format(asked.output_config),
    )


def body(call: Call, asked: Any) -> bytes:
    answer = call.answers[0]
    content: dict[str, Any] = {"type": "text", "text": ""}
    if isinstance(answer, Text):
        content["text"] = answer.prose.text(answer.length)
    else:
        content = _use(answer) | {"input": _arguments(answer)}
    told = _message_of(call, [content], STOP_REASONS[answer.finish])
    if call.script.usage:
        told["usage"] = usage(call, call.completion_tokens)
    return msgspec.json.encode(told)


def usage(call: Call, completion: int) -> dict[str, int]:
    return {
        "input_tokens": call.prompt_tokens - call.cached_tokens,
        "cache_read_input_tokens": call.cached_tokens,
        "cache_creation_input_tokens": 0,
        "output_tokens": completion,
    }


def error_body(error: ApiError) -> bytes:
    return msgspec.json.encode(
        {"type": "error", "error": {"type": error.kind, "message": error.message}}
    )


class MessageEvents:
    def __init__(self, call: Call, running_usage: bool) -> None:
        self._call = call
        self._answer = call.answers[0]

    def opening(self) -> str:
        message = _message_of(self._call, [], None)
        if self._call.script.usage:
            message["usage"] = usage(self._call, 0)
        answer = self._answer
        block = {"type": "text", "text": ""} if isinstance(answer, Text) else _use(answer)
        start = event("message_start", message=message)
        return start + event("content_block_start", index=0, content_block=block)

    def token(self, moved: Event) -> str:
        _, tokens, _ = moved
        answer = self._answer
        if not tokens or (isinstance(answer, ToolCall) and tokens == 1):
            return ""  # a tool's first token is its name, which the block began with
        if isinstance(answer, Text):
            delta = {"type": "text_delta", "text": answer.prose.piece(tokens - 1)}
        else:
            delta = {"type": "input_json_delta", "partial_json": answer.piece(tokens - 1)}
        return event("content_block_delta", index=0, delta=delta)

    def closing(self, asked_usage: bool) -> str:
        delta = {"stop_reason": STOP_REASONS[self._answer.finish], "stop_sequence": None}
        more: dict[str, Any] = {"delta": delta}
        if self._call.script.usage:
            more["usage"] = usage(self._call, self._call.completion_tokens)
        stop = event("content_block_stop", index=0) + event("message_delta", **more)
        return stop + event("message_stop")

    def error(self, message: str) -> str:
        return event("error", error={"type": "api_error", "message": message})


def event(kind: str, **more: Any) -> str:
    return f"event: {kind}\ndata: {msgspec.json.encode({'type': kind, **more}).decode()}\n\n"


def _message_of(call: Call, content: list[dict[str, Any]], reason: str | None) -> dict[str, Any]:
    return {
        "id": call.id,
        "type": "message",
        "role": "assistant",
        "model": call.model,
        "content": content,
        "stop_reason": reason,
        "stop_sequence": None,
    }


def _use(answer: ToolCall) -> dict[str, Any]:
    return {"type": "tool_use", "id": answer.id, "name": answer.name, "input": {}}


def _arguments(answer: ToolCall) -> Any:
    try:
        return msgspec.json.decode(answer.text())
    except msgspec.DecodeError:  # cut off by max_tokens
        return {}


def _choice(given: AnyChoice | None) -> Any:
    if given is None:
        return None
    if given.type == "tool":
        return ToolChoice(FunctionName(given.name or ""))
    return CHOICES[given.type]


def _message(turn: Turn) -> Message:
    """A tool's result makes its turn a tool's, so that its caller gets prose back."""
    if isinstance(turn.content, str):
        return Message(turn.role, turn.content)
    has_result = any(block.get("type") == "tool_result" for block in turn.content)
    parts = [_part(block) for block in turn.content]
    return Message("tool" if has_result else turn.role, parts)


def _part(block: dict[str, Any]) -> dict[str, Any]:
    if block.get("type") == "text":
        return {"type": "text", "text": str(block.get("text"))}
    if block.get("type") == "image":
        return {"type": "image_url", "image_url": block.get("source")}
    return {"type": "text", "text": msgspec.json.encode(block).decode()}
