"""What an admin should know before a change is applied, from plain figures.

1. A warning never refuses: what must not be is an issue of the validation.
2. Only what the change itself does is told: a limit that is exceeded already, and stays as it is,
   is no news here.
3. What is compared is what holds in the end, a tier's values filled in, so that an edit of a tier
   tells of each tenant that it reaches.
4. Where no gateway is heard of, that is said once, in place of what could not be looked at.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from tenants.core.compile import compile_snapshot
from tenants.core.diff import Kind
from tenants.core.document import Document
from tenants.core.shown import counted, few
from tenants.core.snapshot import BudgetPolicy, PolicySnapshot, PoolPolicy, TenantPolicy

NEAR_FULL = 0.9  # of all shares reserved: little is left to go by rank


@dataclass(frozen=True, slots=True)
class PolicyWarning:
    """`note` tells an effect that may well be meant; `warning` something that will hurt."""

    level: Literal["warning", "note"]
    kind: Kind | Literal["policy"]
    name: str
    field: str  # as in `diff.Change`; "" for the object itself
    message: str

    def __str__(self) -> str:
        return f"{self.level}: {self.message}"


@dataclass(frozen=True, slots=True)
class TenantNow:
    running: int = 0
    queued: int = 0
    requests: int = 0  # taken in the last minute
    tokens: int = 0  # used in the last minute


@dataclass(frozen=True, slots=True)
class EndpointNow:
    running: int = 0
    available: bool = True


@dataclass(frozen=True, slots=True)
class LaneNow:
    """One lane of one pool; `active` are the tenants that run or wait in it."""

    running: int = 0
    queued: int = 0
    oldest_wait_s: float = 0.0
    active: frozenset[str] = frozenset()


Call = tuple[str, str, str]  # application, model, lane


@dataclass(frozen=True, slots=True)
class LiveState:
    """`known` is False where no gateway was heard of; `recent` and `budgets` are of the ledger."""

    known: bool = False
    tenants: Mapping[str, TenantNow] = field(default_factory=dict)
    endpoints: Mapping[tuple[str, str], EndpointNow] = field(default_factory=dict)  # model, url
    lanes: Mapping[tuple[str, str], LaneNow] = field(default_factory=dict)  # model, lane
    budgets: Mapping[str, float] = field(default_factory=dict)  # account: used and reserved
    recent: Mapping[str, Mapping[Call, int]] = field(default_factory=dict)  # requests, last hour


UNKNOWN = LiveState()


def compiled(document: Document) -> PolicySnapshot:
    """What holds under it; takes a while where tenants are many."""
    return compile_snapshot(document, (), 0, 0)


def warnings(before: PolicySnapshot, after: PolicySnapshot, live: LiveState) -> list[PolicyWarning]:
    """What going from one to the other does to what runs now, warnings before notes."""
    found = [
        *_shares(before, after),
        *_lanes(before, after, live),
        *_pools(before, after, live),
        *_addresses(before, after),
        *_tenants(before, after, live),
        *_weights(before, after, live),
    ]
    if not live.known and (before.pools or before.tenants):
        text = "No gateway is heard of, so what runs and waits now could not be looked at."
        found.append(PolicyWarning("note", "policy", "", "", text))
    return sorted(found, key=lambda warning: warning.level != "warning")


def affected(before: PolicySnapshot, after: PolicySnapshot) -> list[str]:
    """The tenants whose policy in effect differs: those that `LiveState` should tell of."""
    return [name for name, held in before.tenants.items() if held != after.tenants.get(name)]


def _shares(before: PolicySnapshot, after: PolicySnapshot) -> Iterator[PolicyWarning]:
    was, now = (sum(lane.reserved_share for lane in each.lanes) for each in (before, after))
    if now > was and now >= NEAR_FULL:
        text = f"Reserved shares add up to {now:.0%}; {1 - now:.0%} is left to go by rank."
        yield PolicyWarning("warning", "lane", "", "reserved_share", text)


def _lanes(
    before: PolicySnapshot, after: PolicySnapshot, live: LiveState
) -> Iterator[PolicyWarning]:
    for name, lane in before.lanes_by_name.items():
        new = after.lanes_by_name.get(name)
        states = [state for (_, each), state in live.lanes.items() if each == name]
        queued = sum(state.queued for state in states)
        if new is None and queued:
            text = f"{counted(queued, 'request')} in lane {name} wait now and would be refused."
            yield PolicyWarning("warning", "lane", name, "", text)
        elif new is not None and new.max_queue_seconds < lane.max_queue_seconds:
            oldest = max((state.oldest_wait_s for state in states), default=0.0)
            if oldest > new.max_queue_seconds:
                text = (
                    f"The oldest request in lane {name} has waited {oldest:.1f} s, longer than "
                    f"the new {new.max_queue_seconds:g} s."
                )
                yield PolicyWarning("warning", "lane", name, "max_queue_seconds", text)


def _pools(
    before: PolicySnapshot, after: PolicySnapshot, live: LiveState
) -> Iterator[PolicyWarning]:
    for model, pool in before.pools.items():
        new = after.pools.get(model)
        if new is None:
            yield from _removed_pool(pool, live)
        elif new.endpoints != pool.endpoints:
            yield from _endpoints(pool, new, live)


def _removed_pool(pool: PoolPolicy, live: LiveState) -> Iterator[PolicyWarning]:
    model, names = pool.model, {pool.model, *pool.aliases}
    states = [state for (each, _), state in live.lanes.items() if each == model]
    running, queued = sum(s.running for s in states), sum(s.queued for s in states)
    if running or queued:
        text = f"{model} runs {running} and queues {queued}; what waits would be refused."
        yield PolicyWarning("warning", "pool", model, "", text)
    recent = (each for calls in live.recent.values() for each in calls.items())
    asked = sum(count for (_, name, _), count in recent if name in names)
    if asked:
        text = f"{counted(asked, 'request')} in the last hour asked for {model}."
        yield PolicyWarning("warning", "pool", model, "", text)


def _endpoints(pool: PoolPolicy, new: PoolPolicy, live: LiveState) -> Iterator[PolicyWarning]:
    drained = {each.url: each.drain for each in new.endpoints}
    for each in pool.endpoints:
        running = live.endpoints.get((pool.model, each.url), EndpointNow()).running
        taken = each.url not in drained
        if running and (taken or (drained[each.url] and not each.drain)):
            done = "removed" if taken else "drained"
            runs = counted(running, "request")
            text = (
                f"{each.url} is {done} while it runs {runs} of {pool.model}; "
                "they finish, and nothing new is sent to it."
            )
            field_ = f"endpoints.{each.url}" + ("" if taken else ".drain")
            yield PolicyWarning("warning", "pool", pool.model, field_, text)
    serving = [each.url for each in new.endpoints if not each.drain]
    could = [each.url for each in pool.endpoints if not each.drain]
    if not serving and could:
        text = f"No endpoint of {pool.model} would be left to take new requests."
        yield PolicyWarning("warning", "pool", pool.model, "endpoints", text)
    elif live.known and all((pool.model, url) not in live.endpoints for url in serving):
        text = (
            f"No gateway has ever reached an endpoint that {pool.model} would be left with "
            f"({few(serving)}): make sure that an engine serves there."
        )
        yield PolicyWarning("warning", "pool", pool.model, "endpoints", text)
    elif set(serving) != set(could) and _none_available(pool.model, serving, live):
        text = f"No endpoint of {pool.model} that would be left is available now."
        yield PolicyWarning("warning", "pool", pool.model, "endpoints", text)


def _addresses(before: PolicySnapshot, after: PolicySnapshot) -> Iterator[PolicyWarning]:
    """An engine looks healthy without the /v1 too, and answers every request with 404."""
    for model, pool in after.pools.items():
        old = before.pools.get(model)
        known = {each.url for each in old.endpoints} if old else set()
        for url in (each.url for each in pool.endpoints if each.url not in known):
            if not re.search(r"/v\d", url):
                text = (
                    f"{url} of {model} has no /v1: requests would go to {url}/chat/completions, "
                    f"where most engines serve nothing; {url}/v1 is the usual address."
                )
                yield PolicyWarning("warning", "pool", model, f"endpoints.{url}", text)


def _none_available(model: str, urls: list[str], live: LiveState) -> bool:
    """One that no gateway knows yet may well be."""
    states = [live.endpoints.get((model, url), EndpointNow()) for url in urls]
    return live.known and not any(state.available for state in states)


def _tenants(
    before: PolicySnapshot, after: PolicySnapshot, live: LiveState
) -> Iterator[PolicyWarning]:
    for name, tenant in before.tenants.items():
        new = after.tenants.get(name)
        if new is None or (tenant.enabled and not new.enabled):
            yield from _stopped(name, "removed" if new is None else "suspended", live)
        if new is not None and new != tenant:
            yield from _limits(tenant, new, live)
            yield from _budgets(_accounts(tenant), _accounts(new), live)
            yield from _taken_away(tenant, new, before, after, live)
    for name, new in after.tenants.items():
        if name not in before.tenants:
            yield from _budgets({}, _accounts(new), live)


def _stopped(name: str, how: str, live: LiveState) -> Iterator[PolicyWarning]:
    now = live.tenants.get(name, TenantNow())
    field_ = "enabled" if how == "suspended" else ""
    if now.running or now.queued:
        text = (
            f"{name} is {how} while {now.running} of its requests run and {now.queued} wait; "
            "those that wait are refused."
        )
        yield PolicyWarning("warning", "tenant", name, field_, text)
    elif asked := sum(live.recent.get(name, {}).values()):
        text = f"{name} is {how}; it made {counted(asked, 'request')} in the last hour."
        yield PolicyWarning("warning", "tenant", name, field_, text)


USE = {  # limit: what it bounds, as a tenant's state tells it and as people say it
    "max_running": ("running", "running now"),
    "max_queued": ("queued", "queued now"),
    "requests_per_minute": ("requests", "requests in the last minute"),
    "tokens_per_minute": ("tokens", "tokens in the last minute"),
}


def _limits(tenant: TenantPolicy, new: TenantPolicy, live: LiveState) -> Iterator[PolicyWarning]:
    now = live.tenants.get(tenant.name, TenantNow())
    for name, (used, said) in USE.items():
        was, limit, use = (
            getattr(tenant.limits, name),
            getattr(new.limits, name),
            getattr(now, used),
        )
        lowered = limit is not None and (was is None or limit < was)
        if lowered and use > limit:
            text = f"{tenant.name}: {name} {limit:,} is below its {use:,} {said}."
            yield PolicyWarning("warning", "tenant", tenant.name, f"limits.{name}", text)


Accounts = dict[str, tuple[Kind, str, BudgetPolicy]]  # by account: kind and name of its owner


def _accounts(tenant: TenantPolicy) -> Accounts:
    found: Accounts = {each.account: ("tenant", tenant.name, each) for each in tenant.budgets}
    for application in tenant.applications.values():
        owner = f"{tenant.name}/{application.name}"
        found |= {each.account: ("application", owner, each) for each in application.budgets}
    return found


def _budgets(before: Accounts, after: Accounts, live: LiveState) -> Iterator[PolicyWarning]:
    for account, (kind, owner, budget) in after.items():
        was = before[account][2] if account in before else None
        lowered = was is None or budget.cost < was.cost or was.kind != budget.kind
        used = live.budgets.get(account, 0.0)
        if lowered and budget.kind == "sustained" and used >= budget.cost:
            text = (
                f"{owner}: budget {budget.name} would be used up at once: {used:,.0f} of "
                f"{budget.cost:,.0f} units in this {budget.period}; then: {budget.on_exhausted}."
            )
            yield PolicyWarning("warning", kind, owner, f"budgets.{budget.name}.cost", text)


def _taken_away(
    tenant: TenantPolicy,
    new: TenantPolicy,
    before: PolicySnapshot,
    after: PolicySnapshot,
    live: LiveState,
) -> Iterator[PolicyWarning]:
    """Lanes, models and applications that recent calls used. A pool that is gone altogether is
    told of once, as a pool."""
    by_application, by_model, by_lane = _recent(tenant.name, before, live)
    for lane in sorted(set(tenant.allowed_lanes) - set(new.allowed_lanes)):
        if by_lane.get(lane):
            yield _lost(tenant.name, "lane", lane, "allowed_lanes", by_lane[lane])
    for model in sorted(tenant.models - new.models):
        if model in after.pools and by_model.get(model):
            yield _lost(tenant.name, "model", model, "models", by_model[model])
    for name in tenant.applications:
        if name not in new.applications and by_application.get(name):
            text = (
                f"Application {tenant.name}/{name} made "
                f"{counted(by_application[name], 'request')} in the last hour."
            )
            yield PolicyWarning("warning", "application", f"{tenant.name}/{name}", "", text)


def _lost(tenant: str, what: str, name: str, field_: str, count: int) -> PolicyWarning:
    text = (
        f"{tenant} may no longer use {what} {name}, as {counted(count, 'request')} of it did in "
        "the last hour."
    )
    return PolicyWarning("warning", "tenant", tenant, field_, text)


def _recent(
    tenant: str, before: PolicySnapshot, live: LiveState
) -> tuple[dict[str, int], dict[str, int], dict[str, int]]:
    by_application: dict[str, int] = {}
    by_model: dict[str, int] = {}
    by_lane: dict[str, int] = {}
    for (application, asked, lane), count in live.recent.get(tenant, {}).items():
        pool = before.models.get(asked)
        model = pool.model if pool else asked
        for totals, key in ((by_application, application), (by_model, model), (by_lane, lane)):
            totals[key] = totals.get(key, 0) + count
    return by_application, by_model, by_lane


def _weights(
    before: PolicySnapshot, after: PolicySnapshot, live: LiveState
) -> Iterator[PolicyWarning]:
    """What a weight comes to among those that compete for the same lane of the same pool now."""
    several = len({model for (model, _), state in live.lanes.items() if state.active}) > 1
    for (model, lane), state in sorted(live.lanes.items()):
        was = _entitled(before, state.active)
        now = _entitled(after, state.active)
        place = f"{lane} on {model}" if several else lane
        for name in sorted(was.keys() & now.keys()):
            if before.tenants[name].weight == after.tenants[name].weight:
                continue
            text = (
                f"{name}: {was[name]:.0%} → {now[name]:.0%} of {place}, by weight among the "
                f"{len(now)} tenants active there now."
                if len(now) > 1
                else f"{name} is alone in {place} now; its weight counts once others are there."
            )
            yield PolicyWarning("note", "tenant", name, "weight", text)


def _entitled(snapshot: PolicySnapshot, active: frozenset[str]) -> dict[str, float]:
    known = [snapshot.tenants[name] for name in active if name in snapshot.tenants]
    weights = {tenant.name: tenant.weight for tenant in known if tenant.enabled}
    whole = sum(weights.values())
    return {name: weight / whole for name, weight in weights.items()}
