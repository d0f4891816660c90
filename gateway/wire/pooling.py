"""Prompts of the routes that generate nothing: embeddings, rerank, score, tokenize.

1. A query that is scored against many texts is read by the model once for each of them, so it
   counts as often.
2. What is no text (an image to embed, a document with pictures) counts as media.
"""

from __future__ import annotations

from typing import Any

from gateway.errors import invalid
from gateway.wire.prompt import (
    MAX_PROMPTS,
    Prompt,
    of_chat,
    of_given,
    size_of,
    text_of_part,
    texts_in,
    texts_of_chat,
)

Body = dict[str, Any]

# How engines name the two sides: vLLM's in three ages, SGLang's.
PAIRS = (
    ("text_1", "text_2"),
    ("queries", "documents"),
    ("query", "documents"),
    ("data_1", "data_2"),
    ("query", "items"),
)


def of_embeddings(body: Body) -> Prompt:
    """`input`, or `messages` as vLLM takes them for models that embed pictures."""
    if body.get("input") is None and "messages" in body:
        return of_chat(body)
    return of_given(body.get("input"), "input")


def texts_of_embeddings(body: Body) -> list[str]:
    given = body.get("input")
    return texts_of_chat(body) if given is None else texts_in(given)


def of_rerank(body: Body) -> Prompt:
    return _pairs(body, "query", "documents")


def of_score(body: Body) -> Prompt:
    for left, right in PAIRS:
        if left in body and right in body:
            return _pairs(body, left, right)
    raise invalid("text_1 and text_2 must be given; each is a text or a list of texts", "text_1")


def of_tokenize(body: Body) -> Prompt:
    """vLLM's two forms; llama.cpp calls the text `content`."""
    if "messages" in body:
        return of_chat(body)
    return of_given(body.get("content") if "content" in body else body.get("prompt"), "prompt")


def _pairs(body: Body, left: str, right: str) -> Prompt:
    one, other = _side(body.get(left), left), _side(body.get(right), right)
    if one.prompts not in (1, other.prompts):
        raise invalid(
            f"{left} holds {one.prompts} and {right} {other.prompts}; {left} takes one, or as many "
            f"as {right}",
            left,
        )
    times = other.prompts if one.prompts == 1 else 1
    return Prompt(
        text_bytes=one.text_bytes * times + other.text_bytes,
        tokens=one.tokens * times + other.tokens,
        prompts=max(one.prompts, other.prompts),
        media=one.media * times + other.media,
        lead=one.lead,
    )


def _side(given: Any, field: str) -> Prompt:
    """A text, an object with one, or a list of either; token ids as SGLang takes them."""
    if isinstance(given, str | dict):
        given = [given]
    if not isinstance(given, list) or not given:
        raise invalid(f"{field} must be a text or a list with at least one text", field)
    if set(map(type, given)) <= {int, list}:
        return of_given(given, field)
    if len(given) > MAX_PROMPTS:
        raise invalid(f"{field} holds {len(given)} texts; at most {MAX_PROMPTS}", field)
    texts: list[str] = []
    media = sum(_item(item, field, texts) for item in given)
    return Prompt(sum(map(size_of, texts)), prompts=len(given), media=media, lead=texts[:1])


def _item(item: Any, field: str, texts: list[str]) -> int:
    """Puts the item's texts into `texts`; answers how many other parts it has."""
    content = item.get("content") if isinstance(item, dict) else None
    media = 0
    for part in content if isinstance(content, list) else [item if content is None else content]:
        text = text_of_part(part) if isinstance(part, dict) else part
        if text is None and part is not None:
            media += 1
        elif isinstance(text, str):
            texts.append(text)
        else:
            raise invalid(f"{field} holds what is neither a text nor an object with one", field)
    return media
