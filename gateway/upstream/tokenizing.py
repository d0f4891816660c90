"""vLLM's form of `/tokenize` at an engine that has another: llama.cpp takes one text (`content`),
renders no chat, and lists the tokens without a count.

1. A chat is rendered by the engine's own template, and read as its chat route reads it: with the
   token that a text of this model begins with, which llama.cpp leaves out of what it renders.
2. The answer is vLLM's too. Who speaks llama.cpp's form gets its answer as it came.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import msgspec

from gateway.dialects import Dialect
from gateway.errors import ApiError, Outcome
from gateway.wire.request import ParsedCall

Body = dict[str, Any]
Post = Callable[[str, Body], Awaitable[Any]]  # to a path of the engine; what its answer held
MOST_BYTES = 64 * 2**20  # it tells every token's id


class Whole:
    """`client.Answer` that is made here."""

    status = 200
    is_complete = True

    def __init__(self, body: bytes) -> None:
        self.headers = [(b"content-type", b"application/json")]
        self._body = body

    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield self._body

    async def aclose(self) -> None: ...


def is_foreign(call: ParsedCall, dialect: Dialect) -> bool:
    """Whether the call is in a form that its engine would answer with an empty list."""
    return (
        call.route.kind == "tokenize"
        and dialect.counts == "llamacpp"
        and "content" not in call.body
    )


async def tokenized(post: Post, body: Body, context_tokens: int | None) -> Whole:
    """Ask llama.cpp what `body` asks in vLLM's form.

    Raises:
        ApiError: engine_error, where the engine's answers hold no text or no tokens; what `post`
            raises.
    """
    asked = {"content": body.get("prompt"), "add_special": body.get("add_special_tokens", True)}
    if "messages" in body:
        prompt = _told(await post("/apply-template", body), "prompt", str)
        asked = {"content": prompt, "add_special": True}
    said = await post("/tokenize", {"model": body["model"], **asked})
    tokens = _told(said, "tokens", list)
    answer = {"count": len(tokens), "max_model_len": context_tokens, "tokens": tokens}
    return Whole(encoded(answer))


def encoded(body: Body) -> bytes:
    """Raises:
    ApiError: engine_error, where an engine's words are none that JSON can hold.
    """
    try:
        return msgspec.json.encode(body)
    except (ValueError, OverflowError, RecursionError):  # half a surrogate pair, for one
        raise ApiError(Outcome.ENGINE_ERROR, "The engine told what can not be passed on.") from None


def _told(said: Any, name: str, kind: type) -> Any:
    found = said.get(name) if isinstance(said, dict) else None
    if not isinstance(found, kind):
        raise ApiError(Outcome.ENGINE_ERROR, f"The engine told no {name} of what it was sent.")
    return found
