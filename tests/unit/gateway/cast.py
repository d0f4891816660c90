"""The cast: Alice's tenant with its application `bot`, Bob's on the small tier, Sam's suspended.

Policies go through validation and compilation, so that no test works from a policy that could not
be in force.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from copy import deepcopy
from datetime import UTC, datetime, timedelta
from typing import Any

from gateway.admission import Estimate, Plan, find_lane, find_pool, make_plan
from gateway.identity import Identity, identify
from gateway.run import Run
from gateway.wire.request import ParsedCall, parse
from tenants.core.compile import KeyGrant, compile_snapshot
from tenants.core.snapshot import PolicySnapshot
from tenants.core.validation import validate

AT = datetime(2026, 11, 29, 12, tzinfo=UTC)
A, B = "http://engine-a/v1", "http://engine-b/v1"
SECRET = {name: f"secret-of-{name}".encode() for name in ("alice", "bot", "bob", "sam", "old")}
EXPECTED = Estimate(prompt_tokens=10, output_tokens=20, ceiling_tokens=100)
LANES = ["critical", "standard", "batch"]

POLICY: dict[str, Any] = {
    "version": 1,
    "lanes": [
        {"name": "critical", "rank": 0, "reserved_share": 0.3, "max_queue_seconds": 20},
        {"name": "standard", "rank": 1, "engine_priority": 7},
        {"name": "batch", "rank": 2, "ceiling": 0.5, "max_queue_seconds": 3600},
    ],
    "tiers": [
        {"name": "gold", "weight": 4, "lane": "standard", "allowed_lanes": LANES},
        {"name": "small", "lane": "batch", "models": ["chat"]},
    ],
    "pools": [
        {"model": "chat", "aliases": ["gpt-4o-mini"], "endpoints": [{"url": A}, {"url": B}]},
        {"model": "org/code", "endpoints": [{"url": A, "drain": True}, {"url": B}]},
    ],
    "tenants": [
        {
            "name": "alice",
            "tier": "gold",
            "applications": [{"name": "bot", "lane": "critical", "weight": 3}],
        },
        {"name": "bob", "tier": "small"},
        {"name": "sam", "tier": "gold", "enabled": False},
    ],
}
KEYS = {
    "alice": ("alice", ""),
    "bot": ("alice", "bot"),
    "bob": ("bob", ""),
    "sam": ("sam", ""),
    "old": ("alice", ""),  # expired a second ago
}


def digest(name: str) -> bytes:
    return hashlib.sha256(SECRET[name]).digest()


def snapshot(
    *,
    alice: Mapping[str, Any] | None = None,
    pool: Mapping[str, Any] | None = None,
    lane: Mapping[str, Any] | None = None,
    without: tuple[str, ...] = (),
    revision: int = 1,
) -> PolicySnapshot:
    """The policy, with fields of Alice's tenant, of the pool `chat` and of the lane `standard`
    changed, and without the tenants, pools or keys named. Alice's alone may name lanes of it."""
    data = deepcopy(POLICY)
    data["tenants"][0].update(alice or {})
    data["pools"][0].update(pool or {})
    data["lanes"][1].update(lane or {})
    data["tenants"] = [t for t in data["tenants"] if t["name"] not in without]
    data["pools"] = [p for p in data["pools"] if p["model"] not in without]
    grants = [
        KeyGrant(f"key{name}", tenant, application, digest(name), expiry(name))
        for name, (tenant, application) in KEYS.items()
        if name not in without
    ]
    return compile_snapshot(validate(data), grants, revision, revision)


def expiry(name: str) -> datetime | None:
    return AT - timedelta(seconds=1) if name == "old" else None


def who(policy: PolicySnapshot, name: str = "alice") -> Identity:
    return identify(policy, SECRET[name], AT)


def chat(**fields: Any) -> ParsedCall:
    body = {"model": "chat", "messages": [{"role": "user", "content": "Hello"}], **fields}
    return parse("chat", json.dumps(body).encode())


def plan(
    policy: PolicySnapshot | None = None,
    name: str = "alice",
    *,
    id: str = "r1",
    lane: str = "",
    estimate: Estimate = EXPECTED,
    call: ParsedCall | None = None,
) -> Plan:
    policy = policy or snapshot()
    call = call or chat()
    identity = who(policy, name)
    return make_plan(
        request_id=id,
        snapshot=policy,
        who=identity,
        call=call,
        pool=find_pool(policy, identity.tenant, call.model),
        lane=find_lane(policy, identity, lane),
        estimate=estimate,
        at=AT,
    )


def planned_run(policy: PolicySnapshot | None = None, name: str = "alice", **options: Any) -> Run:
    policy = policy or snapshot()
    made = plan(policy, name, **options)
    return Run(
        request_id=made.hold.request_id,
        at=AT,
        began=100.0,
        snapshot=policy,
        who=made.identity,
        model=made.pool.model,
        lane=made.lane.name,
        plan=made,
    )
