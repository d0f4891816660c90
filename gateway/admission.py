"""From a parsed call to what it may ask for: checks that need no counter, then one plan.

The plan says in one value what the governor has to decide on: the hold on the accounts, the ticket
for the queue, and the lane that it goes to. Nothing here changes any state.
"""

from __future__ import annotations

from datetime import datetime
from functools import lru_cache
from hashlib import blake2b

import msgspec

from gateway.dialects import DIALECTS
from gateway.errors import ApiError, Outcome
from gateway.identity import Identity
from gateway.wire.request import ParsedCall
from metering.core.cost import service_cost
from metering.core.hold import Hold
from scheduling.core.model import Ticket
from tenants.core.snapshot import LanePolicy, OnOverload, PolicySnapshot, PoolPolicy, TenantPolicy

SALTS_KEPT = 4096


class Estimate(msgspec.Struct, frozen=True):
    prompt_tokens: int
    output_tokens: int  # expected
    ceiling_tokens: int  # the most output that it can have


class Plan(msgspec.Struct, frozen=True):
    identity: Identity
    pool: PoolPolicy
    lane: LanePolicy
    lowest: LanePolicy  # where a demoted call goes
    on_overload: OnOverload
    estimate: Estimate
    hold: Hold
    ticket: Ticket
    at: datetime
    accounts: tuple[str, ...]  # where the ledger counts it: sustained budgets, which have windows


def check_tenant(tenant: TenantPolicy) -> None:
    if not tenant.enabled:
        raise ApiError(
            Outcome.TENANT_SUSPENDED,
            f"Tenant '{tenant.name}' is suspended. Ask your platform team to enable it.",
        )


def find_pool(snapshot: PolicySnapshot, tenant: TenantPolicy, model: str) -> PoolPolicy:
    pool = snapshot.models.get(model)
    if pool is None:
        raise ApiError(
            Outcome.MODEL_NOT_FOUND,
            f"The model '{model}' does not exist here. GET /v1/models lists those you may use.",
            param="model",
        )
    if pool.model not in tenant.models:
        raise ApiError(
            Outcome.MODEL_NOT_ALLOWED,
            f"Tenant '{tenant.name}' may not use the model '{model}'. "
            "GET /v1/models lists those you may use.",
            param="model",
        )
    return pool


def find_lane(snapshot: PolicySnapshot, who: Identity, asked: str) -> LanePolicy:
    name = asked or who.application.lane
    if asked and asked not in who.tenant.allowed_lanes:
        allowed = ", ".join(who.tenant.allowed_lanes)
        raise ApiError(
            Outcome.LANE_NOT_ALLOWED,
            f"Tenant '{who.tenant.name}' may not use the lane '{asked}'; its lanes are: {allowed}.",
            param="X-Fairlane-Lane",
        )
    return snapshot.lanes_by_name[name]


def output_ceiling(tenant: TenantPolicy, call: ParsedCall) -> int | None:
    """The most output tokens for one choice: the caller's limit, within the tenant's. None where
    there is no limit, or no output.

    Raises:
        ApiError: output_limit_exceeded when the caller asks for more than its tenant may have.
    """
    if not call.route.generates:
        return None
    most, asked = tenant.limits.max_output_tokens, call.max_output_tokens
    if most is not None and asked is not None and asked > most:
        field = next(name for name in call.route.bounds if call.body.get(name) == asked)
        raise ApiError(
            Outcome.OUTPUT_LIMIT_EXCEEDED,
            f"{field} is {asked}; tenant '{tenant.name}' may ask for at most {most} "
            "(max_output_tokens).",
            param=field,
            limit="max_output_tokens",
        )
    return most if asked is None else asked


def check_input(tenant: TenantPolicy, prompt_tokens: int, field: str) -> None:
    most = tenant.limits.max_input_tokens
    if most is not None and prompt_tokens > most:
        raise ApiError(
            Outcome.CONTEXT_LENGTH_EXCEEDED,
            f"The input is about {prompt_tokens} tokens; tenant '{tenant.name}' may send at most "
            f"{most} (max_input_tokens).",
            param=field,
            limit="max_input_tokens",
        )


def make_plan(
    *,
    request_id: str,
    snapshot: PolicySnapshot,
    who: Identity,
    call: ParsedCall,
    pool: PoolPolicy,
    lane: LanePolicy,
    estimate: Estimate,
    at: datetime,
    interaction: str = "",
) -> Plan:
    cost = service_cost(pool.cost, estimate.prompt_tokens, 0, estimate.output_tokens)
    ceiling = service_cost(pool.cost, estimate.prompt_tokens, 0, estimate.ceiling_tokens)
    tokens = estimate.prompt_tokens + estimate.output_tokens
    named = call.max_output_tokens is not None
    tenant = who.tenant
    budgets = (*who.key.budgets, *who.application.budgets, *tenant.budgets)
    hold = Hold(
        request_id=request_id,
        tenant=tenant.name,
        limits=tenant.limits,
        budgets=budgets,
        tokens=tokens,
        cost=cost,
        ceiling_cost=max(cost, ceiling),
        ceiling_tokens=estimate.prompt_tokens + estimate.ceiling_tokens if named else tokens,
        interaction=interaction,
        soft_limits=tenant.soft_limits,
    )
    ticket = Ticket(
        request_id=request_id,
        pool=pool.model,
        lane=lane.name,
        tenant=tenant.name,
        application=who.application.name,
        cost=cost,
        load=float(tokens),
        prefix=cached_prefix(call, pool, tenant.name),
    )
    lowest = snapshot.lanes_by_name[tenant.allowed_lanes[-1]] if tenant.allowed_lanes else lane
    accounts = tuple([b.account for b in budgets if b.period is not None])
    return Plan(who, pool, lane, lowest, tenant.on_overload, estimate, hold, ticket, at, accounts)


def cached_prefix(call: ParsedCall, pool: PoolPolicy, tenant: str) -> int:
    """The hash of a prompt's leading text as the engine's cache knows it: two that are salted
    apart there are two here as well, or a request would go where its prefix only seems to be."""
    if not (DIALECTS[pool.engine].cache_salt and call.route.cache_salt):
        return call.prefix
    own = call.body.get("cache_salt")
    salt = f"{tenant if pool.isolate_prefix_cache else ''}\0{own if isinstance(own, str) else ''}"
    return call.prefix if salt == "\0" else call.prefix ^ _mask(salt) or 1


@lru_cache(SALTS_KEPT)
def _mask(salt: str) -> int:
    """63 bits of a salt's hash: the prefix it is laid over is a hash as well."""
    digest = blake2b(salt.encode("utf-8", "replace"), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1
