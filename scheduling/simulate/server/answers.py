"""What a choice will say, fixed when the request comes in: the same request, the same answer."""

from __future__ import annotations

import json
from dataclasses import dataclass
from math import exp
from statistics import NormalDist
from typing import Any, Literal

from scheduling.simulate.profile import OutputLength
from scheduling.simulate.server.errors import bad_request
from scheduling.simulate.server.wire import ChatRequest, Tool, ToolChoice
from scheduling.simulate.text import BYTES_PER_TOKEN, Prose

Finish = Literal["stop", "length", "tool_calls"]
NO_SCHEMA: dict[str, Any] = {"properties": {"answer": {}}}  # for who asks for some object
DEPTH = 6  # of a tool's parameters; deeper ones get an empty value


@dataclass(frozen=True, slots=True)
class Fixed:
    """Given text, in ASCII, where prose would be."""

    given: str

    def piece(self, position: int) -> str:
        return self.given[position * BYTES_PER_TOKEN :][:BYTES_PER_TOKEN]

    def text(self, length: int) -> str:
        return self.given[: length * BYTES_PER_TOKEN]


@dataclass(frozen=True, slots=True)
class Text:
    prose: Prose | Fixed
    length: int
    finish: Finish


@dataclass(frozen=True, slots=True)
class ToolCall:
    """Its first token names the function; each one after it is a piece of the arguments."""

    id: str
    name: str
    arguments: str  # JSON in ASCII
    length: int
    finish: Finish

    def piece(self, position: int) -> str:
        start = (position - 1) * BYTES_PER_TOKEN
        return self.arguments[start : start + BYTES_PER_TOKEN]

    def text(self) -> str:
        return self.arguments[: (self.length - 1) * BYTES_PER_TOKEN]


Answer = Text | ToolCall


def drawn_length(seed: int, output: OutputLength) -> int:
    """A length of its own for each seed, log-normal over seeds."""
    uniform = ((seed >> 11) + 0.5) / 2**53
    return max(1, round(output.median_tokens * exp(output.spread * NormalDist().inv_cdf(uniform))))


def prose(seed: int, wanted: int, limit: int) -> Text:
    if wanted > limit:
        return Text(Prose(seed), limit, "length")
    return Text(Prose(seed), wanted, "stop")


def tool_call(seed: int, tool: Tool, limit: int) -> ToolCall:
    arguments = json.dumps(example(tool.function.parameters or {}))
    wanted = 1 - (-len(arguments) // BYTES_PER_TOKEN)
    return ToolCall(
        id=f"chatcmpl-tool-{seed:016x}",
        name=tool.function.name,
        arguments=arguments,
        length=min(wanted, limit),
        finish="tool_calls" if wanted <= limit else "length",
    )


def fixed(given: str, limit: int) -> Text:
    wanted = -(-len(given) // BYTES_PER_TOKEN)
    return Text(Fixed(given), min(wanted, limit), "stop" if wanted <= limit else "length")


def json_to_say(asked: ChatRequest) -> str | None:
    """What fits the format that the caller asked for; None where any text does."""
    form = asked.response_format
    if form is None or form.type == "text":
        return None
    schema = form.json_schema.schema if form.json_schema else None
    return json.dumps(example(schema or NO_SCHEMA))


def tool_to_call(asked: ChatRequest) -> Tool | None:
    """The forced tool, else the first. A caller that brings a tool's result gets prose back
    unless it forces a call, or its loop would never end."""
    choice, tools = asked.tool_choice or "auto", asked.tools or []
    if isinstance(choice, ToolChoice):
        return _named(choice.function.name, tools)
    if choice == "none" or not tools:
        if choice == "required":
            raise bad_request("tool_choice is `required` but no tools are given.", "tool_choice")
        return None
    if choice == "auto" and asked.messages and asked.messages[-1].role == "tool":
        return None
    return tools[0]


def _named(name: str, tools: list[Tool]) -> Tool:
    for tool in tools:
        if tool.function.name == name:
            return tool
    raise bad_request(f"The tool {name!r} of tool_choice is not among the tools.", "tool_choice")


def example(schema: dict[str, Any]) -> Any:
    """The smallest plain object that fits a JSON schema, for what tools commonly use of it."""
    value = _example(schema, schema, 0)
    return value if isinstance(value, dict) else {}


def _example(schema: Any, root: dict[str, Any], depth: int) -> Any:
    if not isinstance(schema, dict) or depth > DEPTH:
        return None
    for fixed in ("const", "default"):
        if fixed in schema:
            return schema[fixed]
    if isinstance(schema.get("enum"), list) and schema["enum"]:
        return schema["enum"][0]
    for one_of in ("anyOf", "oneOf", "allOf"):
        if isinstance(schema.get(one_of), list) and schema[one_of]:
            return _example(schema[one_of][0], root, depth + 1)
    if "$ref" in schema:
        return _example(_resolve(str(schema["$ref"]), root), root, depth + 1)
    return _typed(schema, root, depth)


def _typed(schema: dict[str, Any], root: dict[str, Any], depth: int) -> Any:
    properties = schema.get("properties")
    kind = schema.get("type", "object" if isinstance(properties, dict) else "string")
    kind = str(kind[0] if isinstance(kind, list) and kind else kind)
    if kind == "object":
        members = properties.items() if isinstance(properties, dict) else ()
        return {name: _example(of, root, depth + 1) for name, of in members}
    if kind == "array":
        return [_example(schema.get("items", {}), root, depth + 1)]
    if kind in ("integer", "number"):
        return schema.get("minimum", 1)
    return {"boolean": True, "null": None}.get(kind, "sea")


def _resolve(reference: str, root: dict[str, Any]) -> Any:
    found: Any = root
    for step in reference.removeprefix("#/").split("/"):
        found = found.get(step, {}) if isinstance(found, dict) else {}
    return found
