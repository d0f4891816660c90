"""An engine's own count of a prompt: vLLM's `/tokenize`, with a prompt or with messages."""

from __future__ import annotations

from typing import Any

import httpx
import msgspec

from gateway.upstream.client import EngineClient
from gateway.upstream.facts import read_short
from gateway.wire.request import ParsedCall
from gateway.wire.usage import MAX_TOKENS, decode
from tenants.core.snapshot import PoolPolicy

MOST_BYTES = 16 * 2**20  # it tells every token's id, too
RENDERED = ("messages", "tools", "chat_template_kwargs")


async def count_tokens(
    client: EngineClient,
    url: str,
    headers: list[tuple[bytes, bytes]],
    pool: PoolPolicy,
    call: ParsedCall,
    patience_s: float,
) -> int | str:
    """Prompt tokens without those of media; or, in words, why the engine did not count."""
    try:
        body = msgspec.json.encode(asked(pool.model, call))
        response = await client.send(
            "POST",
            f"{url.removesuffix('/v1')}/tokenize",
            [(b"content-type", b"application/json"), *headers],
            body,
            connect_s=patience_s,
            first_byte_s=patience_s,
        )
        said = decode(await read_short(response, patience_s, MOST_BYTES))
    except httpx.TransportError:
        return "/tokenize could not be reached, or not in time"
    if response.status_code != 200:
        return f"/tokenize answered HTTP {response.status_code}"
    count = said.get("count") if isinstance(said, dict) else None
    if type(count) is not int or not 0 <= count <= MAX_TOKENS:
        return "/tokenize told no count"
    return count + call.prompt_tokens


def asked(model: str, call: ParsedCall) -> dict[str, Any]:
    if not call.route.renders:
        texts = call.route.texts(call.body) if call.route.texts else []
        return {"model": model, "prompt": "".join(texts)}
    said = {name: call.body[name] for name in RENDERED if call.body.get(name)}
    return {"model": model, "add_generation_prompt": True, **said}
