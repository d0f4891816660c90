"""A request's prompt as bytes: what is counted, and what the prefix cache compares."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgspec

from scheduling.simulate import text
from scheduling.simulate.server.errors import bad_request
from scheduling.simulate.server.wire import Message, Tool

ID_MASK = 2**32 - 1


@dataclass(frozen=True, slots=True)
class Prompt:
    data: bytes

    @property
    def tokens(self) -> int:
        return text.count(self.data)


def of_chat(
    messages: list[Message], tools: list[Tool] | None, answer: bool, image_tokens: int
) -> Prompt:
    """The chat template. `answer` adds the beginning of the assistant's turn."""
    parts = [b"<|tools|>", msgspec.json.encode(tools)] if tools else []
    for message in messages:
        parts.append(b"<|%s|>" % message.role.encode())
        parts.extend(_content(message, image_tokens))
        if message.tool_calls:
            parts.append(msgspec.json.encode(message.tool_calls))
        parts.append(b"<|end|>")
    if answer:
        parts.append(b"<|assistant|>")
    return Prompt(b"".join(parts))


def of_text(prompt: str) -> Prompt:
    return Prompt(prompt.encode())


def of_ids(ids: list[int]) -> Prompt:
    return Prompt(b"".join((token & ID_MASK).to_bytes(text.BYTES_PER_TOKEN) for token in ids))


def each(prompt: str | list[str | int | list[int]]) -> list[Prompt]:
    """One text, a list of texts, one list of token ids, or a list of those."""
    if isinstance(prompt, str):
        return [of_text(prompt)]
    ids = [token for token in prompt if isinstance(token, int)]
    if ids and len(ids) < len(prompt):
        raise bad_request("The prompt mixes token ids with other prompts.", "prompt")
    if ids:
        return [of_ids(ids)]
    return [_one(one) for one in prompt if not isinstance(one, int)]


def _one(prompt: str | list[int]) -> Prompt:
    return of_text(prompt) if isinstance(prompt, str) else of_ids(prompt)


def _content(message: Message, image_tokens: int) -> Iterator[bytes]:
    if isinstance(message.content, str):
        yield message.content.encode()
        return
    for part in message.content or ():
        yield _part(part, image_tokens)


def _part(part: dict[str, Any], image_tokens: int) -> bytes:
    kind = part.get("type")
    if kind in ("text", "input_text", "refusal"):
        return str(part.get("text") or part.get("refusal") or "").encode()
    if kind in ("image_url", "input_image"):
        return _image(msgspec.json.encode(part), image_tokens)
    raise bad_request(f"Unknown part type: {kind}", "messages")


def _image(reference: bytes, tokens: int) -> bytes:
    """A fixed number of tokens that differ from image to image."""
    mark = text.digest(reference).to_bytes(8)[: text.BYTES_PER_TOKEN]
    return mark * tokens
