"""Prompts of Anthropic's messages and of responses: the same sizes as `prompt` takes of a chat."""

from __future__ import annotations

from typing import Any

import msgspec

from gateway.errors import invalid
from gateway.wire.prompt import (
    MAX_MESSAGES,
    Prompt,
    role_of,
    size_of,
    text_of_part,
)

Body = dict[str, Any]
LEADING = 32  # texts that are looked at for the prefix
MEDIA = frozenset({"image", "document", "input_image", "input_file", "input_audio"})


def of_messages(body: Body) -> Prompt:
    given = body.get("messages")
    if not isinstance(given, list) or not given:
        raise invalid("messages must be a list with at least one message", "messages")
    prompt = Prompt(messages=len(given), texts=[])
    if body.get("system") is not None:
        _add(prompt, "system", body["system"], "system")
    for index, message in enumerate(given):
        role = role_of(message, index)
        _add(prompt, role, message.get("content"), f"messages[{index}].content")
    return _measured(prompt, body)


def texts_of_messages(body: Body) -> list[str]:
    return of_messages(body).texts or []


def of_responses(body: Body) -> Prompt:
    """`input` is a text, or a list of items: messages, uses of tools, what came of them."""
    prompt = Prompt(messages=1, texts=[])
    if body.get("instructions") is not None:
        _add(prompt, "system", body["instructions"], "instructions")
    given = body.get("input")
    if isinstance(given, str):
        _add(prompt, "user", given, "input")
        return _measured(prompt, body)
    if not isinstance(given, list) or not given:
        raise invalid("input must be a text or a list with at least one item", "input")
    if len(given) > MAX_MESSAGES:
        raise invalid(f"input holds more than {MAX_MESSAGES} items", "input")
    prompt.messages = len(given)
    for index, item in enumerate(given):
        _add_item(prompt, item, f"input[{index}]")
    return _measured(prompt, body)


def texts_of_responses(body: Body) -> list[str]:
    return of_responses(body).texts or []


def _add_item(prompt: Prompt, item: Any, where: str) -> None:
    if not isinstance(item, dict):
        raise invalid(f"{where} must be an object", where)
    role, kind = item.get("role"), item.get("type")
    if isinstance(role, str) and "content" in item:
        _add(prompt, role, item["content"], f"{where}.content")
    elif kind is None or kind == "item_reference":
        raise invalid(f"{where} names an item of another call; nothing is kept of those", where)
    elif isinstance(output := item.get("output"), str | list):
        _add(prompt, "tool", output, f"{where}.output")
    else:
        assert prompt.texts is not None
        prompt.texts.append(_encoded(item))


def _add(prompt: Prompt, role: str, content: Any, where: str) -> None:
    """One turn. What leads the conversation ends with the first that a user says."""
    texts = [role]
    prompt.media += _contents(content, where, texts)
    assert prompt.texts is not None
    prompt.texts += texts
    if len(prompt.lead) < LEADING and "user" not in prompt.lead:
        prompt.lead += texts


def _measured(prompt: Prompt, body: Body) -> Prompt:
    assert prompt.texts is not None
    if body.get("tools"):
        prompt.texts.append(_encoded(body["tools"]))
    prompt.text_bytes = sum(map(size_of, prompt.texts))
    return prompt


def _contents(content: Any, where: str, texts: list[str]) -> int:
    """Puts the texts into `texts`; answers how many other parts there are."""
    if isinstance(content, str):
        texts.append(content)
        return 0
    if not isinstance(content, list):
        raise invalid(f"{where} must be a text or a list of parts", where)
    media = 0
    for part in content:
        if not isinstance(part, dict | str):
            raise invalid(f"{where} holds a part that is neither a text nor an object", where)
        # A tool's result has parts of its own; they are not nested further.
        inner = part.get("content") if isinstance(part, dict) else None
        for each in inner if isinstance(inner, list) else [part if inner is None else inner]:
            media += _part(each, texts)
    return media


def _part(part: Any, texts: list[str]) -> int:
    text = text_of_part(part) if isinstance(part, dict) else part
    if isinstance(text, str):
        texts.append(text)
    elif isinstance(part, dict) and part.get("type") in MEDIA:
        return 1
    else:  # the use of a tool, and what else is rendered as it is
        texts.append(_encoded(part))
    return 0


def _encoded(value: Any) -> str:
    try:
        return msgspec.json.encode(value).decode()
    except RecursionError:
        raise invalid("the body is nested too deeply") from None
