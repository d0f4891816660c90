"""An engine's own count of a prompt. vLLM and SGLang render and count at `/tokenize`; llama.cpp's
`/tokenize` takes plain text only, and it counts a chat at an address of its own."""

from __future__ import annotations

from typing import Any, NamedTuple

import httpx
import msgspec

from gateway.dialects import DIALECTS, Dialect
from gateway.upstream.client import EngineClient
from gateway.upstream.facts import read_short
from gateway.wire.headers import Headers
from gateway.wire.request import ParsedCall
from gateway.wire.usage import MAX_TOKENS, decode
from tenants.core.snapshot import PoolPolicy

MOST_BYTES = 16 * 2**20  # it tells every token's id, too
RENDERED = ("messages", "tools", "chat_template_kwargs")


class Question(NamedTuple):
    path: str
    body: dict[str, Any]
    told: str  # where the answer has the count: a number, or a list of so many


async def count_tokens(
    client: EngineClient,
    url: str,
    headers: Headers,
    pool: PoolPolicy,
    call: ParsedCall,
    patience_s: float,
) -> int | str:
    """Prompt tokens without those of media; or, in words, why the engine did not count."""
    path, body, told = question(pool.model, call, DIALECTS[pool.engine])
    try:
        answer = await client.send(
            "POST",
            url.removesuffix("/v1") + path,
            [(b"content-type", b"application/json"), *headers],
            msgspec.json.encode(body),
            connect_s=patience_s,
            first_byte_s=patience_s,
        )
        said = decode(await read_short(answer, patience_s, MOST_BYTES))
    except httpx.TransportError:
        return f"{path} could not be reached, or not in time"
    if answer.status != 200:
        return f"{path} answered HTTP {answer.status}"
    count = said.get(told) if isinstance(said, dict) else None
    if isinstance(count, list):
        count = len(count)
    if type(count) is not int or not 0 <= count <= MAX_TOKENS:
        return f"{path} told no count"
    return count + call.prompt_tokens


def question(model: str, call: ParsedCall, dialect: Dialect) -> Question:
    plain_text = dialect.counts == "llamacpp"
    if call.route.renders:
        said = {name: call.body[name] for name in RENDERED if call.body.get(name)}
        if plain_text:
            path = "/v1/chat/completions/input_tokens"
            return Question(path, {"model": model, **said}, "input_tokens")
        return Question(
            "/tokenize", {"model": model, "add_generation_prompt": True, **said}, "count"
        )
    text = "".join(call.route.texts(call.body) if call.route.texts else [])
    if plain_text:
        return Question("/tokenize", {"content": text, "add_special": True}, "tokens")
    return Question("/tokenize", {"model": model, "prompt": text}, "count")
