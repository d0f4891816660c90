"""How large a prompt is, and how it begins: one pass over what the caller sent.

1. Sizes are UTF-8 bytes of the text that a chat template would render: contents, roles, names,
   tool calls, tool schemas. Media and token arrays are counted apart, since bytes say nothing
   about their tokens.
2. The prefix is the same in every process and for every turn of a conversation: it covers the
   text up to and including the first user message, at most `PREFIX_BYTES` of it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, Literal

import msgspec

from gateway.errors import ApiError, invalid

PREFIX_BYTES = 2048
MAX_PROMPTS = 2048  # in one completions call
_SCHEMAS = ("tools", "functions", "documents")  # what chat templates render


@dataclass(slots=True)
class Prompt:
    text_bytes: int = 0
    tokens: int = 0  # of token arrays, exact
    prompts: int = 1
    messages: int = 0
    media: int = 0  # parts that are not text: images, audio, video, files
    lead: list[str] = field(default_factory=list)

    def prefix(self) -> int:
        """A hash of the leading text, never 0 (which means unknown)."""
        text = "\x00".join(self.lead)[:PREFIX_BYTES].encode("utf-8", "surrogatepass")
        digest = blake2b(text[:PREFIX_BYTES], digest_size=8).digest()
        return int.from_bytes(digest, "big") >> 1 or 1  # fits a signed 64-bit column


def of_chat(body: dict[str, Any]) -> Prompt:
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise invalid("messages must be a list with at least one message", "messages")
    prompt = Prompt(messages=len(messages))
    leading = True
    for index, message in enumerate(messages):
        role = _role(message, index)
        texts = [role]
        prompt.media += _contents(message, index, texts)
        prompt.text_bytes += sum(map(_size, texts)) + _extras(message)
        if leading:
            prompt.lead += [text[:PREFIX_BYTES] for text in texts]
            leading = role != "user"
    prompt.text_bytes += sum(_encoded(body[name]) for name in _SCHEMAS if body.get(name))
    return prompt


def texts_of(kind: Literal["chat", "completions"], body: dict[str, Any]) -> list[str]:
    """The texts whose sizes `of_chat` and `of_completion` add up, of a body that they accepted."""
    if kind == "completions":
        given = body["prompt"]
        texts = [given] if isinstance(given, str) else [t for t in given if isinstance(t, str)]
        return [*texts, body["suffix"]] if isinstance(body.get("suffix"), str) else texts
    texts = []
    for index, message in enumerate(body["messages"]):
        texts.append(message["role"])
        _contents(message, index, texts)
        texts += _extra_texts(message)
    return texts + [msgspec.json.encode(body[n]).decode() for n in _SCHEMAS if body.get(n)]


def of_completion(body: dict[str, Any]) -> Prompt:
    given = body.get("prompt")
    if isinstance(given, str):
        prompt = Prompt(text_bytes=_size(given), lead=[given[:PREFIX_BYTES]])
    elif isinstance(given, list) and given:
        prompt = _of_list(given)
    else:
        raise _odd_prompt()
    if isinstance(suffix := body.get("suffix"), str):
        prompt.text_bytes += _size(suffix)
    return prompt


def _of_list(given: list[Any]) -> Prompt:
    kinds = set(map(type, given))
    if kinds == {int}:
        return Prompt(tokens=_tokens(given), lead=[str(given[: PREFIX_BYTES // 4])])
    if len(given) > MAX_PROMPTS:
        raise invalid(f"prompt holds {len(given)} prompts; at most {MAX_PROMPTS}", "prompt")
    if kinds == {str}:
        size = sum(map(_size, given))
        return Prompt(text_bytes=size, prompts=len(given), lead=[given[0][:PREFIX_BYTES]])
    if kinds == {list}:
        tokens = sum(map(_tokens, given))
        lead = [str(given[0][: PREFIX_BYTES // 4])]
        return Prompt(tokens=tokens, prompts=len(given), lead=lead)
    raise _odd_prompt()


def _tokens(given: list[Any]) -> int:
    if set(map(type, given)) != {int} or min(given) < 0:
        raise _odd_prompt()
    return len(given)


def _odd_prompt() -> ApiError:
    takes = "a text, a list of texts, a list of token ids, or a list of such lists"
    return invalid(f"prompt must be {takes}", "prompt")


def _role(message: Any, index: int) -> str:
    if not isinstance(message, dict):
        raise invalid(f"messages[{index}] must be an object", f"messages[{index}]")
    role = message.get("role")
    if not isinstance(role, str) or not role:
        where = f"messages[{index}].role"
        raise invalid(f"{where} must be a text such as system, user or assistant", where)
    return role


def _contents(message: dict[str, Any], index: int, texts: list[str]) -> int:
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
    found = [_part_text(part, index) for part in content]
    texts += [text for text in found if text is not None]
    return found.count(None)


def _part_text(part: Any, index: int) -> str | None:
    if isinstance(part, str):
        return part
    if not isinstance(part, dict):
        where = f"messages[{index}].content"
        raise invalid(f"{where} holds a part that is neither a text nor an object", where)
    for name in ("text", "refusal", "thinking"):
        if isinstance(text := part.get(name), str):
            return text
    return None


def _extras(message: dict[str, Any]) -> int:
    if len(message) <= 2:  # role and content, as nearly all are
        return 0
    size = 0
    for name, value in message.items():
        if isinstance(value, str) and name not in ("role", "content"):
            size += _size(value)
        elif name in ("tool_calls", "function_call") and value:
            size += _encoded(value)
    return size


def _extra_texts(message: dict[str, Any]) -> list[str]:
    return [
        value if isinstance(value, str) else msgspec.json.encode(value).decode()
        for name, value in message.items()
        if name not in ("role", "content")
        if isinstance(value, str) or (name in ("tool_calls", "function_call") and value)
    ]


def _size(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def _encoded(value: Any) -> int:
    try:
        return len(msgspec.json.encode(value))
    except RecursionError:
        raise invalid("the body is nested too deeply") from None
