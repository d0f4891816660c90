"""OpenAI's responses: read as a chat, answered in typed items and events. Nothing is stored."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from scheduling.simulate.server.answers import Text
from scheduling.simulate.server.call import Call, Event
from scheduling.simulate.server.errors import bad_request
from scheduling.simulate.server.messages import event
from scheduling.simulate.server.wire import (
    ChatRequest,
    Common,
    Formatted,
    Function,
    FunctionName,
    Message,
    Number,
    Role,
    Tool,
    ToolChoice,
    as_response_format,
)

ROLES: dict[str, Role] = {"assistant": "assistant", "system": "system", "developer": "developer"}


class ResponseTool(msgspec.Struct):
    name: Annotated[str, msgspec.Meta(min_length=1)]
    type: Literal["function"] = "function"
    description: str | None = None
    parameters: dict[str, Any] | None = None


class Named(msgspec.Struct):
    name: str
    type: Literal["function"] = "function"


class ResponsesRequest(Common, kw_only=True):
    input: str | list[dict[str, Any]]
    instructions: str | None = None
    max_output_tokens: Number | None = None
    tools: list[ResponseTool] | None = None
    tool_choice: Literal["none", "auto", "required"] | Named | None = None
    text: Formatted | None = None
    store: bool | None = None
    background: bool | None = None


def as_chat(asked: ResponsesRequest) -> ChatRequest:
    if asked.background:
        raise bad_request("background needs a store, and this engine has none.", "background")
    items: list[dict[str, Any]] = [{"role": "user", "content": asked.input}]
    if isinstance(asked.input, list):
        items = asked.input
    if asked.instructions:
        items = [{"role": "system", "content": asked.instructions}, *items]
    tools = [Tool(Function(t.name, t.description, t.parameters)) for t in asked.tools or []]
    choice = asked.tool_choice
    return ChatRequest(
        model=asked.model,
        messages=[_message(item) for item in items],
        max_tokens=asked.max_output_tokens,
        stream=asked.stream,
        cache_salt=asked.cache_salt,
        ignore_eos=asked.ignore_eos,
        tools=tools or None,
        tool_choice=ToolChoice(FunctionName(choice.name)) if isinstance(choice, Named) else choice,
        response_format=as_response_format(asked.text),
    )


def body(call: Call, asked: Any) -> bytes:
    return msgspec.json.encode(_ended(call))


class ResponseEvents:
    def __init__(self, call: Call, running_usage: bool) -> None:
        self._call = call
        self._answer = call.answers[0]
        self._number = -1

    def opening(self) -> str:
        begun = _response(self._call, "in_progress", [])
        item = _item(self._call, "in_progress", told=False)
        opened = self._event("response.created", response=begun)
        opened += self._event("response.in_progress", response=begun)
        opened += self._event("response.output_item.added", output_index=0, item=item)
        if isinstance(self._answer, Text):
            opened += self._event("response.content_part.added", **self._place(), part=_part(""))
        return opened

    def token(self, moved: Event) -> str:
        _, tokens, _ = moved
        answer = self._answer
        if isinstance(answer, Text):
            piece = answer.prose.piece(tokens - 1) if tokens else ""
            return self._event(
                "response.output_text.delta", **self._place(), delta=piece, logprobs=[]
            )
        if tokens < 2:
            return ""  # a tool's first token is its name, which the item began with
        where = {"item_id": answer.id, "output_index": 0}
        piece = answer.piece(tokens - 1)
        return self._event("response.function_call_arguments.delta", **where, delta=piece)

    def closing(self, asked_usage: bool) -> str:
        ended = _ended(self._call)
        item = ended["output"][0]
        if isinstance(self._answer, Text):
            part = item["content"][0]
            done = self._event(
                "response.output_text.done", **self._place(), text=part["text"], logprobs=[]
            )
            done += self._event("response.content_part.done", **self._place(), part=part)
        else:
            where = {"item_id": item["id"], "output_index": 0}
            given = {"name": item["name"], "arguments": item["arguments"]}
            done = self._event("response.function_call_arguments.done", **where, **given)
        done += self._event("response.output_item.done", output_index=0, item=item)
        return done + self._event("response.completed", response=ended)

    def error(self, message: str) -> str:
        return self._event("error", code="server_error", message=message, param=None)

    def _place(self) -> dict[str, Any]:
        return {"item_id": _message_id(self._call), "output_index": 0, "content_index": 0}

    def _event(self, kind: str, **more: Any) -> str:
        self._number += 1
        return event(kind, sequence_number=self._number, **more)


def _ended(call: Call) -> dict[str, Any]:
    """As in vLLM, one that was cut off by its limit ends with `completed` as well, by its name."""
    cut = call.answers[0].finish == "length"
    status = "incomplete" if cut else "completed"
    ended = _response(call, status, [_item(call, status, told=True)])
    if cut:
        ended["incomplete_details"] = {"reason": "max_output_tokens"}
    if call.script.usage:
        ended["usage"] = usage(call)
    return ended


def usage(call: Call) -> dict[str, Any]:
    return {
        "input_tokens": call.prompt_tokens,
        "input_tokens_details": {"cached_tokens": call.cached_tokens},
        "output_tokens": call.completion_tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": call.prompt_tokens + call.completion_tokens,
    }


def _response(call: Call, status: str, output: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "id": call.id,
        "object": "response",
        "created_at": call.created,
        "model": call.model,
        "status": status,
        "output": output,
        "error": None,
        "incomplete_details": None,
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "store": False,
        "usage": None,
    }


def _item(call: Call, status: str, told: bool) -> dict[str, Any]:
    answer = call.answers[0]
    if isinstance(answer, Text):
        content = [_part(answer.prose.text(answer.length))] if told else []
        item = {"id": _message_id(call), "type": "message", "role": "assistant"}
        return {**item, "status": status, "content": content}
    arguments = answer.text() if told else ""
    item = {"id": answer.id, "type": "function_call", "call_id": answer.id, "name": answer.name}
    return {**item, "status": status, "arguments": arguments}


def _part(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": []}


def _message_id(call: Call) -> str:
    return f"msg-{call.id}"


def _message(item: dict[str, Any]) -> Message:
    """A tool's result makes its item a tool's, so that its caller gets prose back."""
    content = item.get("content")
    if item.get("type") == "function_call_output":
        return Message("tool", str(item.get("output")))
    if content is None:
        return Message("assistant", msgspec.json.encode(item).decode())
    role = ROLES.get(str(item.get("role")), "user")
    if isinstance(content, list):
        return Message(role, [_input_part(part) for part in content if isinstance(part, dict)])
    return Message(role, str(content))


def _input_part(part: dict[str, Any]) -> dict[str, Any]:
    if part.get("type") == "output_text":
        return {"type": "text", "text": str(part.get("text"))}
    return part
