"""What engines tell of themselves at `/v1/models`: how long a sequence they take, and whether they
are simulated ones."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx

from gateway.upstream.client import EngineClient
from gateway.wire.usage import decode
from tenants.core.snapshot import PoolPolicy

MAX_BODY_BYTES = 64 * 1024


class EngineFacts:
    def __init__(self, client: EngineClient) -> None:
        self._client = client
        self._context: dict[str, dict[str, int]] = {}  # model -> endpoint -> tokens
        self._simulated: set[tuple[str, str]] = set()

    async def learn(self, pool: PoolPolicy, headers: list[tuple[bytes, bytes]]) -> None:
        """Ask every endpoint of a pool; what one does not say stays unknown."""
        for endpoint in pool.endpoints:
            models = await self._models(endpoint.url, headers, pool.timeouts.connect)
            self._note(pool.model, endpoint.url, models)

    def context_tokens(self, model: str) -> int | None:
        """The longest sequence that every endpoint of the model takes."""
        known = self._context.get(model)
        return min(known.values()) if known else None

    def is_simulated(self, model: str, url: str) -> bool:
        return (model, url) in self._simulated

    def _note(self, model: str, url: str, models: list[dict[str, Any]]) -> None:
        lengths = [m.get("max_model_len") for m in models]
        known = [n for n in lengths if type(n) is int and n > 0]
        if known:
            self._context.setdefault(model, {})[url] = min(known)
        if any(m.get("owned_by") == "simulated" for m in models):
            self._simulated.add((model, url))
        else:
            self._simulated.discard((model, url))

    async def _models(
        self, url: str, headers: list[tuple[bytes, bytes]], patience_s: float
    ) -> list[dict[str, Any]]:
        try:
            response = await self._client.send(
                "GET",
                f"{url}/models",
                headers,
                b"",
                connect_s=patience_s,
                first_byte_s=patience_s,
            )
            body = decode(await read_short(response, patience_s))
        except httpx.TransportError:
            return []
        models = body.get("data") if isinstance(body, dict) else None
        return [m for m in models if isinstance(m, dict)] if isinstance(models, list) else []


async def read_short(
    response: httpx.Response, patience_s: float, most: int = MAX_BODY_BYTES
) -> bytes:
    """A body that should be short; the rest of a longer one is not waited for.

    Raises:
        httpx.TransportError: the engine broke off.
    """
    parts: list[bytes] = []
    size = 0
    assert isinstance(response.stream, httpx.AsyncByteStream)
    try:
        async with asyncio.timeout(patience_s):
            async for part in response.stream:
                parts.append(part)
                size += len(part)
                if size > most:
                    break
    except TimeoutError:
        pass
    finally:
        await response.stream.aclose()
    return b"".join(parts)
