"""What engines tell of themselves: how long a sequence they take, which version they are, whether
they look at priorities, and whether they are simulated ones."""

from __future__ import annotations

import asyncio
import hashlib
from dataclasses import dataclass
from typing import Any

import httpx
import msgspec

from gateway.dialects import DIALECTS, Dialect
from gateway.upstream.client import Answer, EngineClient
from gateway.wire.headers import Headers
from gateway.wire.usage import decode
from tenants.core.snapshot import PoolPolicy

MAX_BODY_BYTES = 64 * 1024
MAX_ABOUT_BYTES = 2 * 2**20  # an engine's whole configuration
MAX_VERSION_CHARS = 64
# Of a model's entry, what says which weights are served, and not when they were loaded.
MODEL_FACTS = ("root", "parent", "max_model_len", "meta")

NOTHING: dict[str, Any] = {}


@dataclass(frozen=True, slots=True)
class Facts:
    """Empty and None: it does not tell. `by_priority` is False where waiting requests are served
    in the order of arrival, or in the reverse of what the dialect says."""

    version: str = ""
    fingerprint: str = ""  # of version and model: endpoints of one pool should have the same
    simulated: bool = False
    context_tokens: int | None = None
    by_priority: bool | None = None


UNKNOWN = Facts()


class EngineFacts:
    def __init__(self, client: EngineClient) -> None:
        self._client = client
        self._known: dict[tuple[str, str], Facts] = {}

    async def learn(self, pool: PoolPolicy, headers: Headers) -> None:
        """Ask every endpoint of a pool; one that cannot be reached keeps what it told before."""
        urls = {endpoint.url for endpoint in pool.endpoints}
        for key in [k for k in self._known if k[0] == pool.model and k[1] not in urls]:
            del self._known[key]
        asked = [self._ask(pool, endpoint.url, headers) for endpoint in pool.endpoints]
        for endpoint, told in zip(pool.endpoints, await asyncio.gather(*asked), strict=True):
            if told is not None:
                self._known[pool.model, endpoint.url] = told

    def of(self, model: str, url: str) -> Facts:
        return self._known.get((model, url), UNKNOWN)

    def context_tokens(self, model: str) -> int | None:
        """The longest sequence that every endpoint of the model takes."""
        told = [facts.context_tokens for (name, _), facts in self._known.items() if name == model]
        return min((tokens for tokens in told if tokens is not None), default=None)

    async def _ask(self, pool: PoolPolicy, url: str, headers: Headers) -> Facts | None:
        patience_s = pool.timeouts.connect
        listed = await self._get(f"{url}/models", headers, patience_s, MAX_BODY_BYTES)
        if listed is None:
            return None
        about = DIALECTS[pool.engine].about
        root = url.removesuffix("/v1")
        said: dict[str, dict[str, Any]] = {}
        for path in {about.version[0] if about.version else None, about.order} - {None}:
            assert path is not None
            found = await self._get(root + path, headers, patience_s, MAX_ABOUT_BYTES)
            said[path] = found or NOTHING
        version = said[about.version[0]].get(about.version[1]) if about.version else ""
        by_priority = _by_priority(DIALECTS[pool.engine], said.get(about.order or "", NOTHING))
        return _facts(pool.model, listed, version, by_priority)

    async def _get(
        self, url: str, headers: Headers, patience_s: float, most: int
    ) -> dict[str, Any] | None:
        """A JSON object, empty where the answer is none; None where there was no answer."""
        try:
            answer = await self._client.send(
                "GET", url, headers, b"", connect_s=patience_s, first_byte_s=patience_s
            )
            body = decode(await read_short(answer, patience_s, most))
        except httpx.TransportError:
            return None
        return body if answer.status == 200 and isinstance(body, dict) else NOTHING


def _facts(model: str, listed: dict[str, Any], version: Any, by_priority: bool | None) -> Facts:
    data = listed.get("data")
    models = [m for m in data if isinstance(m, dict)] if isinstance(data, list) else []
    lengths = [_context(m) for m in models]
    version = _shown(version)[:MAX_VERSION_CHARS] if isinstance(version, str) else ""
    own = next((m for m in models if _is(m, model)), models[0] if len(models) == 1 else NOTHING)
    identity = {name: own[name] for name in MODEL_FACTS if own.get(name) is not None}
    return Facts(
        version=version,
        fingerprint=_fingerprint(version, identity) if identity or version else "",
        simulated=any(m.get("owned_by") == "simulated" for m in models),
        context_tokens=min((n for n in lengths if type(n) is int and n > 0), default=None),
        by_priority=by_priority,
    )


def _context(model: dict[str, Any]) -> Any:
    """SGLang's and vLLM's way to tell it, or llama.cpp's, which is of each of its slots."""
    meta = model.get("meta")
    return model.get("max_model_len") or (meta.get("n_ctx") if isinstance(meta, dict) else None)


def _is(model: dict[str, Any], name: str) -> bool:
    """llama.cpp lists one model, under its first alias or its file's name."""
    aliases = model.get("aliases")
    return model.get("id") == name or (isinstance(aliases, list) and name in aliases)


def _shown(words: str) -> str:
    """What a page, and a database, can hold of an engine's words."""
    return "".join(filter(str.isprintable, words))


def _fingerprint(version: str, identity: dict[str, Any]) -> str:
    try:
        data = msgspec.json.encode([version, identity], order="deterministic")
    except (ValueError, OverflowError, RecursionError):  # half a surrogate pair, for one
        return ""
    return hashlib.sha256(data).hexdigest()[:10]


def _by_priority(dialect: Dialect, said: dict[str, Any]) -> bool | None:
    """vLLM's whole configuration, or SGLang's flags: on, and sorted as the dialect says."""
    config = said.get("vllm_config")
    scheduler = config.get("scheduler_config") if isinstance(config, dict) else None
    if isinstance(scheduler, dict) and isinstance(scheduler.get("policy"), str):
        return bool(scheduler["policy"] == "priority")
    if isinstance(on := said.get("enable_priority_scheduling"), bool):
        lower_first = said.get("schedule_low_priority_values_first") is True
        return on and lower_first == (dialect.priority_sign == 1)
    return None


async def read_short(answer: Answer, patience_s: float, most: int = MAX_BODY_BYTES) -> bytes:
    """A body that should be short; the rest of a longer one is not waited for.

    Raises:
        httpx.TransportError: the engine broke off.
    """
    parts: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(patience_s):
            async for part in answer:
                parts.append(part)
                size += len(part)
                if size > most:
                    break
    except TimeoutError:
        pass
    finally:
        await answer.aclose()
    return b"".join(parts)
