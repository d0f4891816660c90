"""How large a prompt is, and how it begins: one pass over what the caller sent.

1. Sizes are UTF-8 bytes of the text that a chat template would render: contents, roles, names,
   tool calls, tool schemas. Media and token arrays are counted apart, since bytes say nothing
   about their tokens.
2. The prefix is the same in every process and for every turn of a conversation: it covers the
   text up to and including the first user message, at most `PREFIX_BYTES` of it.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

import msgspec

from gateway.errors import ApiError, invalid

PREFIX_BYTES = 2048
MAX_PROMPTS = 2048  # in one call
MAX_MESSAGES = 20_000
# What chat templates render, beside the messages and in one of them.
_SCHEMAS = frozenset({"tools", "functions", "documents", "chat_template_kwargs"})
_IN_MESSAGE = ("tool_calls", "function_call", "tools")


class Prompt(msgspec.Struct):
    text_bytes: int = 0
    tokens: int = 0  # of token arrays, exact
    prompts: int = 1
    messages: int = 0
    media: int = 0  # parts that are not text: images, audio, video, files
    lead: list[str] = msgspec.field(default_factory=list)
    texts: list[str] | None = None  # whose bytes are counted, where they were collected

    def prefix(self) -> int:
        """A hash of the leading text, never 0 (which means unknown)."""
        lead = [text[:PREFIX_BYTES] for text in self.lead]
        text = "\x00".join(lead)[:PREFIX_BYTES].encode("utf-8", "surrogatepass")
        digest = blake2b(text[:PREFIX_BYTES], digest_size=8).digest()
        return int.from_bytes(digest, "big") >> 1 or 1  # fits a signed 64-bit column


def of_chat(body: dict[str, Any]) -> Prompt:
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise invalid("messages must be a list with at least one message", "messages")
    prompt = Prompt(messages=len(messages))
    leading = True
    for index, message in enumerate(messages):
        role = role_of(message, index)
        texts = [role]
        prompt.media += contents(message, index, texts)
        for text in texts:
            prompt.text_bytes += len(text) if text.isascii() else size_of(text)
        if len(message) > 2:  # role and content are all that nearly every message has
            prompt.text_bytes += _extras(message)
        if leading:
            prompt.lead += texts
            leading = role != "user"
    if not _SCHEMAS.isdisjoint(body):
        prompt.text_bytes += sum(encoded_size(body[name]) for name in _SCHEMAS if body.get(name))
    return prompt


def texts_of_chat(body: dict[str, Any]) -> list[str]:
    """The texts whose sizes `of_chat` adds up, of a body that it accepted."""
    texts = []
    for index, message in enumerate(body["messages"]):
        texts.append(message["role"])
        contents(message, index, texts)
        texts += _extra_texts(message)
    return texts + [msgspec.json.encode(body[n]).decode() for n in _SCHEMAS if body.get(n)]


def texts_of_completion(body: dict[str, Any]) -> list[str]:
    """The texts whose sizes `of_completion` adds up."""
    texts = texts_in(body["prompt"])
    return [*texts, body["suffix"]] if isinstance(body.get("suffix"), str) else texts


def texts_in(given: str | list[Any]) -> list[str]:
    return [given] if isinstance(given, str) else [t for t in given if isinstance(t, str)]


def of_completion(body: dict[str, Any]) -> Prompt:
    prompt = of_given(body.get("prompt"), "prompt")
    if isinstance(suffix := body.get("suffix"), str):
        prompt.text_bytes += size_of(suffix)
    return prompt


def of_given(given: Any, field: str) -> Prompt:
    """One text, a list of texts, one list of token ids, or a list of those."""
    if isinstance(given, str):
        return Prompt(text_bytes=size_of(given), lead=[given])
    if not isinstance(given, list) or not given:
        raise _odd_prompt(field)
    kinds = set(map(type, given))
    if kinds == {int}:
        return Prompt(tokens=_tokens(given, field), lead=[str(given[: PREFIX_BYTES // 4])])
    if len(given) > MAX_PROMPTS:
        raise invalid(f"{field} holds {len(given)} prompts; at most {MAX_PROMPTS}", field)
    if kinds == {str}:
        size = sum(map(size_of, given))
        return Prompt(text_bytes=size, prompts=len(given), lead=given[:1])
    if kinds == {list}:
        tokens = sum(_tokens(one, field) for one in given)
        lead = [str(given[0][: PREFIX_BYTES // 4])]
        return Prompt(tokens=tokens, prompts=len(given), lead=lead)
    raise _odd_prompt(field)


def _tokens(given: list[Any], field: str) -> int:
    if set(map(type, given)) != {int} or min(given) < 0:
        raise _odd_prompt(field)
    return len(given)


def _odd_prompt(field: str) -> ApiError:
    takes = "a text, a list of texts, a list of token ids, or a list of such lists"
    return invalid(f"{field} must be {takes}", field)


def role_of(message: Any, index: int) -> str:
    if not isinstance(message, dict):
        raise invalid(f"messages[{index}] must be an object", f"messages[{index}]")
    role = message.get("role")
    if not isinstance(role, str) or not role:
        where = f"messages[{index}].role"
        raise invalid(f"{where} must be a text such as system, user or assistant", where)
    return role


def contents(message: dict[str, Any], index: int, texts: list[str]) -> int:
    """Puts the message's texts into `texts`; answers how many other parts there are."""
    content = message.get("content")
    if isinstance(content, str):
        texts.append(content)
        return 0
    if content is None:
        return 0
    if not isinstance(content, list):
        where = f"messages[{index}].content"
        raise invalid(f"{where} must be a text, a list of parts, or null", where)
    found = [part_text(part, index) for part in content]
    texts += [text for text in found if text is not None]
    return found.count(None)


def part_text(part: Any, index: int) -> str | None:
    if isinstance(part, str):
        return part
    if not isinstance(part, dict):
        where = f"messages[{index}].content"
        raise invalid(f"{where} holds a part that is neither a text nor an object", where)
    return text_of_part(part)


def text_of_part(part: dict[str, Any]) -> str | None:
    """None for a picture, a recording, a file."""
    for name in ("text", "refusal", "thinking"):
        if isinstance(text := part.get(name), str):
            return text
    return None


def _extras(message: dict[str, Any]) -> int:
    size = 0
    for name, value in message.items():
        if isinstance(value, str) and name not in ("role", "content"):
            size += size_of(value)
        elif name in _IN_MESSAGE and value:
            size += encoded_size(value)
    return size


def _extra_texts(message: dict[str, Any]) -> list[str]:
    return [
        value if isinstance(value, str) else msgspec.json.encode(value).decode()
        for name, value in message.items()
        if name not in ("role", "content")
        if isinstance(value, str) or (name in _IN_MESSAGE and value)
    ]


def size_of(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def encoded_size(value: Any) -> int:
    try:
        return len(msgspec.json.encode(value))
    except RecursionError:
        raise invalid("the body is nested too deeply") from None
