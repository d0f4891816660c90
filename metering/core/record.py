"""The usage record: one per request that passed the key check, whatever its end."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

import msgspec

UsageSource = Literal["engine", "counted", "estimated"]
FinishReason = Literal[
    "stop",
    "length",
    "tool_calls",
    "content_filter",
    "cancelled",
    "timeout",
    "error",
    "throttled",
    "rejected",
]
TAKEN_FOR_DEAD = "gateway_restart"  # what then stands as the reason why a request was ended


class UsageRecord(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Field names and meanings are the contract's. `cost` is service units, never money."""

    request_id: str
    at: datetime  # aware UTC, when the request arrived; the window it counts in
    tenant: str
    application: str = ""
    key: str = ""
    model: str = ""
    lane: str = ""
    interaction: str = ""
    endpoint: str = ""
    prompt_tokens: int = 0
    cached_tokens: int = 0  # contained in prompt_tokens
    completion_tokens: int = 0
    usage_source: UsageSource = "estimated"
    cost: float = 0.0
    estimated_cost: float = 0.0
    queue_ms: float = 0.0
    ttft_ms: float | None = None
    e2e_ms: float = 0.0
    status: int = 200
    finish_reason: FinishReason = "stop"
    throttle_reason: str = ""  # the limit that decided, for throttled and rejected requests
    policy_revision: int = 0
    accounts: tuple[str, ...] = ()  # of the sustained budgets that this cost counts against

    @property
    def is_guess(self) -> bool:
        """Whether its gateway was taken for dead, so that nobody knew how it really ended."""
        return self.throttle_reason == TAKEN_FOR_DEAD
