"""The compiled policy that a gateway works from: immutable, complete, and looked up by hash.

1. A snapshot is built whole and swapped whole; nothing in it ever changes.
2. Everything inherited (tier → tenant → application) is already resolved here.
3. Lookups on the request path are one dictionary access each.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from types import MappingProxyType
from typing import Literal

OnExhausted = Literal["reject", "demote", "alert"]
OnOverload = Literal["queue", "demote", "reject"]
SoftLimit = Literal["requests_per_minute", "tokens_per_minute"]
EngineKind = Literal["vllm", "vllm-body", "sglang", "llamacpp", "llm-d", "openai"]

NO_APPLICATION = ""  # what a key that is bound to no application counts under


@dataclass(frozen=True, slots=True)
class Limits:
    """Hard limits of one tenant; None means unlimited."""

    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    max_running: int | None = None
    max_queued: int | None = None
    max_input_tokens: int | None = None
    max_output_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class BudgetPolicy:
    """One budget of one owner. `account` names its counter everywhere: `tenant:acme/hourly`."""

    account: str
    name: str
    kind: Literal["burst", "sustained"]
    cost: float  # service units
    refill_per_second: float = 0.0  # burst only
    period: str | None = None  # sustained only: minute, hour, day, week, month, or days as in 90d
    timezone: str = "UTC"
    on_exhausted: OnExhausted = "reject"


@dataclass(frozen=True, slots=True)
class LanePolicy:
    name: str
    rank: int  # 0 is served first
    engine_priority: int
    reserved_share: float = 0.0
    ceiling: float = 1.0
    max_queue_seconds: float = 60.0


@dataclass(frozen=True, slots=True)
class EndpointPolicy:
    url: str  # base URL with its /v1, no trailing slash
    drain: bool = False


@dataclass(frozen=True, slots=True)
class Capacity:
    """What one endpoint may hold; `auto` starts here and learns."""

    max_running: int = 16
    max_running_tokens: int = 60_000
    auto: bool = False


@dataclass(frozen=True, slots=True)
class Cost:
    """Service units per token: the fairness unit, never money."""

    input: float = 1.0
    cached_input: float = 1.0
    output: float = 2.0


@dataclass(frozen=True, slots=True)
class Price:
    """Money per million tokens, as decimal text; showback only."""

    currency: str
    input_per_million: str
    output_per_million: str


@dataclass(frozen=True, slots=True)
class Timeouts:
    connect: float = 5.0
    first_token: float = 120.0
    idle: float = 60.0
    total: float = 600.0


@dataclass(frozen=True, slots=True)
class Tokenizer:
    kind: Literal["estimate", "engine", "file"] = "estimate"
    path: str = ""


@dataclass(frozen=True, slots=True)
class PoolPolicy:
    model: str
    aliases: tuple[str, ...]
    endpoints: tuple[EndpointPolicy, ...]
    capacity: Capacity = Capacity()
    cost: Cost = Cost()
    price: Price | None = None
    tokenizer: Tokenizer = Tokenizer()
    api_key_env: str | None = None
    engine: EngineKind = "vllm"
    isolate_prefix_cache: bool = True
    locality_quantum: float = 0.0
    timeouts: Timeouts = Timeouts()


@dataclass(frozen=True, slots=True)
class ApplicationPolicy:
    name: str
    lane: str
    weight: float = 1.0
    budgets: tuple[BudgetPolicy, ...] = ()


@dataclass(frozen=True, slots=True)
class TenantPolicy:
    """A tenant's effective policy, its tier's values already filled in."""

    name: str
    tier: str
    weight: float
    lane: str
    allowed_lanes: tuple[str, ...]  # by rank, best first
    limits: Limits
    budgets: tuple[BudgetPolicy, ...]
    models: frozenset[str]  # pool names this tenant may use, patterns already resolved
    on_overload: OnOverload = "queue"
    soft_limits: frozenset[SoftLimit] = frozenset()  # do not refuse while nobody waits
    timezone: str = "UTC"
    enabled: bool = True
    applications: Mapping[str, ApplicationPolicy] = field(
        default_factory=lambda: MappingProxyType({})
    )


@dataclass(frozen=True, slots=True)
class KeyPolicy:
    """One accepted secret of one key; a key in its rotation grace has two of these."""

    id: str
    tenant: str
    application: str
    expires_at: datetime | None = None  # aware UTC; this secret is refused from then on
    budgets: tuple[BudgetPolicy, ...] = ()


@dataclass(frozen=True, slots=True)
class PolicySnapshot:
    """`version` grows with every change of policy or keys; `revision` only with policy."""

    revision: int
    version: int
    lanes: tuple[LanePolicy, ...]  # by rank
    pools: Mapping[str, PoolPolicy]  # by model name
    models: Mapping[str, PoolPolicy]  # by model name and by every alias
    tenants: Mapping[str, TenantPolicy]
    keys: Mapping[bytes, KeyPolicy]  # by SHA-256 digest of the secret
    lanes_by_name: Mapping[str, LanePolicy]
