"""How each kind of engine speaks: priority, cache isolation, usage, health.

1. A field goes only to an engine that is known to take it; `openai` is any other compatible
   server, so it gets the standard's fields and nothing else (case R37).
2. A lane's `engine_priority` is lower-first, as in vLLM; `priority_sign` turns it where an engine
   sorts the other way (SGLang's default; engines.md 1.2).
3. No caller chooses a priority, in whatever form; those fields are dropped for every engine.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from tenants.core.snapshot import EngineKind

INT64 = 2**63 - 1  # vLLM answers 500 to a priority past it


@dataclass(frozen=True, slots=True)
class Dialect:
    kind: EngineKind
    priority: Literal["header", "body", "none"] = "none"
    priority_sign: Literal[1, -1] = 1
    flow_headers: bool = False  # llm-d's fairness id and objective
    cache_salt: bool = False
    stream_usage: bool = True  # stream_options.include_usage
    running_usage: bool = False  # stream_options.continuous_usage_stats
    usage_per_choice: bool = False  # n > 1: a usage frame for each choice, to be summed
    dropped: frozenset[str] = frozenset()  # caller's fields that would get round policy
    health: Literal["health", "models"] = "health"


DIALECTS: Mapping[EngineKind, Dialect] = MappingProxyType(
    {
        "vllm": Dialect("vllm", priority="header", cache_salt=True, running_usage=True),
        "vllm-body": Dialect("vllm-body", priority="body", cache_salt=True, running_usage=True),
        # `rid` is the engine's own name for a running request; two tenants' must never meet.
        "sglang": Dialect(
            "sglang",
            priority="body",
            priority_sign=-1,
            cache_salt=True,
            running_usage=True,
            dropped=frozenset({"rid"}),
        ),
        # llama.cpp lets n_predict overrule max_tokens, which is what policy has checked.
        "llamacpp": Dialect("llamacpp", usage_per_choice=True, dropped=frozenset({"n_predict"})),
        # The engines behind llm-d are vLLM and SGLang; its router orders by its own headers.
        "llm-d": Dialect(
            "llm-d", flow_headers=True, cache_salt=True, running_usage=True, health="models"
        ),
        "openai": Dialect("openai", health="models"),
    }
)


def engine_priority(dialect: Dialect, lane_priority: int) -> int:
    """The lane's number as this engine sorts it, within what an engine can hold."""
    return max(-INT64, min(INT64, lane_priority * dialect.priority_sign))


def health_url(dialect: Dialect, base_url: str) -> str:
    """Where to ask whether an endpoint is well; `base_url` is the policy's, with its /v1."""
    if dialect.health == "models":
        return f"{base_url}/models"
    return f"{base_url.removesuffix('/v1')}/health"
