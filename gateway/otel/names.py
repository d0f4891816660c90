"""Attribute names and values of the semantic conventions, and our own beside them.

https://github.com/open-telemetry/semantic-conventions-genai (2026, status: development)
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from urllib.parse import urlsplit

from gateway.upstream.transport import PORTS
from gateway.wire.routes import Kind
from tenants.core.snapshot import EngineKind

OPERATION = "gen_ai.operation.name"
PROVIDER = "gen_ai.provider.name"
MODEL = "gen_ai.request.model"
ERROR = "error.type"
TENANT = "fairlane.tenant"
LANE = "fairlane.lane"

# What the conventions have no name for is called as its route.
OPERATIONS: Mapping[Kind, str] = MappingProxyType(
    {
        "chat": "chat",
        "completions": "text_completion",
        "responses": "chat",
        "messages": "chat",
        "embeddings": "embeddings",
        "rerank": "rerank",
        "score": "score",
        "tokenize": "tokenize",
    }
)
# `openai` is what the conventions call any server that speaks so.
PROVIDERS: Mapping[EngineKind, str] = MappingProxyType(
    {
        "vllm": "vllm",
        "vllm-body": "vllm",
        "sglang": "sglang",
        "llamacpp": "llama.cpp",
        "llm-d": "llm-d",
        "openai": "openai",
    }
)


def address(endpoint: str) -> dict[str, str | int]:
    """An endpoint of the policy as `server.address` and `server.port`."""
    parts = urlsplit(endpoint)
    port = parts.port or PORTS.get(parts.scheme, 0)
    return {"server.address": parts.hostname or "", "server.port": port}
