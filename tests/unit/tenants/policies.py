"""The cast: Alice's tenant `acme`, Bob's `bricks`, one pool, three lanes; and any valid policy."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from tenants.core.document import Document
from tenants.core.issue import Invalid
from tenants.core.validation import validate
from tenants.core.yaml_text import parse

POLICY = """\
version: 1
lanes:
  - {name: critical, rank: 0, engine_priority: 0, reserved_share: 0.3}
  - {name: standard, rank: 1, reserved_share: 0.2}
  - {name: batch, rank: 2, ceiling: 0.9, max_queue_seconds: 3600}
tiers:
  - name: gold
    weight: 4
    lane: standard
    allowed_lanes: [standard, critical, batch]
    limits: {max_running: 32, requests_per_minute: 600}
    budgets:
      - {name: burst, kind: burst, cost: 200000, refill_per_second: 4000}
      - {name: hourly, kind: sustained, cost: 5000000, period: hour}
  - {name: free, lane: batch}
pools:
  - model: demo-chat
    aliases: [gpt-4o-mini]
    endpoints: [{url: "http://127.0.0.1:9101/v1"}, {url: "http://127.0.0.1:9102/v1"}]
    price: {currency: USD, input_per_million: "0.20", output_per_million: "0.80"}
tenants:
  - name: acme
    tier: gold
    weight: 8
    timezone: Asia/Tokyo
    limits: {max_running: 8}
    budgets: [{name: hourly, kind: sustained, cost: 9, period: day}]
    applications:
      - {name: bot, lane: critical, weight: 3}
      - {name: nightly, lane: batch, budgets: [{name: own, kind: sustained, cost: 7, period: hour}]}
  - {name: bricks, tier: free}
"""


def read(text: str) -> Document:
    found = parse(text)
    return validate(found.data, found.line)


def issues(text: str) -> list[str]:
    try:
        read(text)
    except Invalid as invalid:
        return [str(issue) for issue in invalid.issues]
    return []


def names(prefix: str, most: int = 4) -> st.SearchStrategy[list[str]]:
    tail = st.from_regex(r"[a-z0-9._-]{0,6}", fullmatch=True)
    return st.lists(tail.map(lambda end: prefix + end), max_size=most, unique=True)


def some(**optional: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional=optional)


weights = st.one_of(st.integers(1, 100), st.floats(0.001, 1e6))
units = st.one_of(st.integers(0, 10**15), st.floats(0, 1e15))
counts = st.integers(0, 10**15)
limits = some(
    max_running=counts, max_queued=counts, max_input_tokens=counts, requests_per_minute=counts
)
overload = st.sampled_from(["queue", "demote", "reject"])
soft_limits = st.lists(
    st.sampled_from(["requests_per_minute", "tokens_per_minute"]), unique=True, max_size=2
)


def budget(name: str) -> st.SearchStrategy[dict[str, Any]]:
    burst = st.fixed_dictionaries(
        {"name": st.just(name), "kind": st.just("burst"), "cost": units}
        | {"refill_per_second": st.floats(0.001, 1e9)}
    )
    sustained = st.fixed_dictionaries(
        {"name": st.just(name), "kind": st.just("sustained"), "cost": units}
        | {"period": st.sampled_from(["minute", "hour", "day", "week", "month", "90d"])},
        optional={"on_exhausted": st.sampled_from(["reject", "demote", "alert"])},
    )
    return burst | sustained


budgets = names("b", 2).flatmap(lambda found: st.tuples(*map(budget, found)).map(list))


@st.composite
def policies(draw: st.DrawFn) -> dict[str, Any]:
    """Plain values of a policy that has nothing wrong with it."""
    lane_names = draw(names("l"))
    lanes = [draw(_lane(name, rank)) for rank, name in enumerate(lane_names)]
    pools = [draw(_pool(name)) for name in draw(names("Org/m", 3))]
    tier_names = draw(names("t", 3)) if lanes else []
    tiers = [draw(_tier(name, lane_names)) for name in tier_names]
    tenant_names = draw(names("x", 4)) if tiers else []
    tenants = [draw(_tenant(name, tier_names, lane_names)) for name in tenant_names]
    given = {"version": 1, "lanes": lanes, "tiers": tiers, "pools": pools, "tenants": tenants}
    return {key: value for key, value in given.items() if value or draw(st.booleans())}


def _lane(name: str, rank: int) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries(
        {"name": st.just(name), "rank": st.just(rank)},
        optional={
            "engine_priority": st.integers(-100, 100),
            "reserved_share": st.floats(0, 0.25),
            "ceiling": st.floats(0.1, 1),
            "max_queue_seconds": st.floats(0.1, 1e6),
        },
    )


def _pool(name: str) -> st.SearchStrategy[dict[str, Any]]:
    ports = st.lists(st.integers(1, 65535), min_size=1, max_size=3, unique=True)
    endpoints = ports.map(lambda found: [{"url": f"http://10.0.0.1:{port}/v1"} for port in found])
    money = st.from_regex(r"[0-9]{1,9}(\.[0-9]{1,9})?", fullmatch=True)
    price = st.fixed_dictionaries(
        {"currency": st.just("EUR"), "input_per_million": money, "output_per_million": money}
    )
    return st.fixed_dictionaries(
        {"model": st.just(name), "endpoints": endpoints},
        optional={
            "capacity": st.just("auto") | some(max_running=st.integers(1, 1000)),
            "cost": st.fixed_dictionaries({"output": st.floats(0.1, 100)}),
            "price": price,
            "tokenizer": st.just({"kind": "file", "path": "tokenizer.json"}),
            "engine": st.sampled_from(["vllm", "sglang", "openai"]),
            "isolate_prefix_cache": st.booleans(),
            "locality_quantum": units,
            "timeouts": some(connect=st.floats(0.1, 100)),
        },
    )


def _tier(name: str, lanes: list[str]) -> st.SearchStrategy[dict[str, Any]]:
    def with_lane(lane: str) -> st.SearchStrategy[dict[str, Any]]:
        return st.fixed_dictionaries(
            {"name": st.just(name), "lane": st.just(lane), "allowed_lanes": st.permutations(lanes)},
            optional={
                "weight": weights,
                "limits": limits,
                "budgets": budgets,
                "on_overload": overload,
                "soft_limits": soft_limits,
                "models": st.just(["Org/*"]),
            },
        )

    return st.sampled_from(lanes).flatmap(with_lane)


def _tenant(name: str, tiers: list[str], lanes: list[str]) -> st.SearchStrategy[dict[str, Any]]:
    def application(own: str) -> st.SearchStrategy[dict[str, Any]]:
        return st.fixed_dictionaries(
            {"name": st.just(own)},
            optional={"lane": st.sampled_from(lanes), "weight": weights, "budgets": budgets},
        )

    applications = names("a", 3).flatmap(lambda found: st.tuples(*map(application, found)))
    return st.fixed_dictionaries(
        {"name": st.just(name), "tier": st.sampled_from(tiers)},
        optional={
            "weight": weights,
            "lane": st.sampled_from(lanes),
            "limits": limits,
            "budgets": budgets,
            "on_overload": overload,
            "soft_limits": soft_limits,
            "models": st.just(["*"]),
            "timezone": st.sampled_from(["UTC", "Asia/Tokyo", "Europe/Berlin"]),
            "enabled": st.booleans(),
            "applications": applications.map(list),
        },
    )
