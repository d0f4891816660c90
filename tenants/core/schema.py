"""The policy file's JSON Schema, for editors: what the types say, and what they say in code.

It knows shapes, not names: that a tier exists is the validation's to say.
"""

from __future__ import annotations

from typing import Any

from tenants.core.document import Document
from tenants.core.periods import PERIOD

DIALECT = "https://json-schema.org/draft/2020-12/schema"

BURST = {"kind": {"const": "burst"}, "refill_per_second": {"type": "number"}}
BURST_LACKS = {"period": {"type": "null"}, "on_exhausted": {"const": "reject"}}
SUSTAINED = {"kind": {"const": "sustained"}, "period": {"type": "string", "pattern": PERIOD}}
FILE = {"kind": {"const": "file"}, "path": {"type": "string"}}
RULES: dict[str, dict[str, Any]] = {
    "Budget": {
        "oneOf": [
            {"required": ["refill_per_second"], "properties": BURST | BURST_LACKS},
            {
                "required": ["period"],
                "properties": SUSTAINED | {"refill_per_second": {"type": "null"}},
            },
        ]
    },
    "Tokenizer": {
        "oneOf": [
            {"required": ["kind", "path"], "properties": FILE},
            {"properties": {"kind": {"enum": ["estimate", "engine"]}, "path": {"type": "null"}}},
        ]
    },
}
SAID = {
    "Lane.rank": "0 is served first; ranks are unique.",
    "Lane.engine_priority": "The number that the engine gets, lower first; 10 × rank unless set.",
    "Lane.reserved_share": "Of all that a pool serves while the lane waits; all add up to 1.",
    "Lane.ceiling": "Part of a pool's capacity that this lane and those below it may fill.",
    "Lane.max_queue_seconds": "The longest wait.",
    "Tier.weight": "Share among those who wait in a lane.",
    "Tier.lane": "Used when nothing else says one.",
    "Tier.allowed_lanes": "What X-Fairlane-Lane and applications may name.",
    "Tier.on_overload": "When the predicted wait is past the lane's max_queue_seconds.",
    "Tier.models": "Pools, by name or pattern (*, ?).",
    "Tier.soft_limits": "Rates that refuse only while others wait.",
    "Budget.cost": "In service units.",
    "Budget.refill_per_second": "Of a burst budget: units a second.",
    "Budget.period": "Of a sustained budget, by the tenant's timezone.",
    "Budget.on_exhausted": "Of a sustained budget.",
    "Pool.aliases": "Other names of the model.",
    "Pool.capacity": "Per endpoint; auto learns it from the engine's metrics.",
    "Pool.cost": "Service units a token: fairness, not money.",
    "Pool.price": "Shown, never charged.",
    "Pool.api_key_env": "Name of the variable that holds the engine's key.",
    "Pool.isolate_prefix_cache": "A cache salt for each tenant, where the engine knows it.",
    "Pool.locality_quantum": "Units by which a request whose prefix is cached may go ahead.",
    "Endpoint.url": "With its /v1.",
    "Endpoint.drain": "Takes nothing new.",
    "Tenant.tier": "Whose values hold where the tenant has none of its own.",
    "Tenant.budgets": "Each replaces the tier's of the same name.",
    "Tenant.timezone": "For the periods of budgets, such as Europe/Berlin.",
    "Tenant.enabled": "false: suspended.",
    "Application.lane": "The tenant's unless set.",
    "Application.weight": "Among the tenant's own applications.",
}


def json_schema() -> dict[str, Any]:
    found = Document.model_json_schema()
    parts = found["$defs"]
    for name, rules in RULES.items():
        parts[name] |= rules
    for place, text in SAID.items():
        part, _, field = place.partition(".")
        parts[part]["properties"][field]["description"] = text
    parts["Endpoint"]["properties"]["url"]["pattern"] = "^https?://"
    return {"$schema": DIALECT, **found, "title": "Fairlane policy"}
