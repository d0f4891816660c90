"""From a policy and a trace to a simulation: who runs where, and in which lane.

What the policy does not know is put where it would most likely be, and said in the trace's notes:
a tenant as one of `tier`, a model as the first pool, a lane as the tenant's own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

from gateway.policy import scheduler_config
from scheduling.core.model import PoolConfig, SchedulerConfig
from scheduling.simulate.profile import Profile
from scheduling.simulate.scenario import LaneRun, PoolRun, Scenario
from scheduling.simulate.trace import Arrival, Trace
from tenants.core import yaml_text
from tenants.core.compile import compile_snapshot
from tenants.core.document import Document, Tenant
from tenants.core.issue import Invalid, Issue
from tenants.core.snapshot import PolicySnapshot, PoolPolicy, TenantPolicy
from tenants.core.validation import validate


def read_policy(path: Path) -> Document:
    """Raises:
    OSError, UnicodeDecodeError, Invalid: it can't be read, or is no sound policy.
    """
    text = yaml_text.parse(path.read_text("utf-8"))
    return validate(text.data, text.line)


def place(
    document: Document, trace: Trace, profile: Profile, tier: str | None = None
) -> tuple[Scenario, Trace]:
    """The policy with an engine of that profile behind each endpoint, and the trace on it.

    Raises:
        Invalid: the policy has no pool, or no such tier.
    """
    snapshot = compile_snapshot(document, (), revision=0, version=0)
    if not snapshot.pools:
        raise Invalid([Issue("pools", None, "", "the policy has no pool")])
    names = dict.fromkeys(arrival.tenant for arrival in trace.arrivals)
    strangers = [name for name in names if name not in snapshot.tenants]
    if strangers:
        snapshot = _with_strangers(document, snapshot, strangers, tier)
    placing = _Placing(snapshot)
    arrivals = tuple(placing.all(trace.arrivals))
    notes = (*trace.notes, *_notes(placing, strangers, snapshot))
    return _scenario(snapshot, profile), replace(trace, arrivals=arrivals, notes=notes)


class _Placing:
    def __init__(self, snapshot: PolicySnapshot) -> None:
        self._snapshot = snapshot
        self._first = next(iter(snapshot.pools.values()))
        self.changed: Counter[str] = Counter()

    def all(self, arrivals: tuple[Arrival, ...]) -> Iterator[Arrival]:
        for arrival in arrivals:
            tenant = self._snapshot.tenants[arrival.tenant]
            pool = self._pool(arrival)
            if not tenant.enabled:
                self.changed["left out: the tenant is suspended"] += 1
            elif pool.model not in tenant.models:
                self.changed["left out: the tenant may not use the model"] += 1
            else:
                yield replace(arrival, model=pool.model, lane=self._lane(arrival, tenant))

    def _pool(self, arrival: Arrival) -> PoolPolicy:
        found = self._snapshot.models.get(arrival.model)
        if found is None and arrival.model:
            self.changed[f"ran on {self._first.model}: the policy lacks their model"] += 1
        return found or self._first

    def _lane(self, arrival: Arrival, tenant: TenantPolicy) -> str:
        if arrival.lane in tenant.allowed_lanes:
            return arrival.lane
        if arrival.lane:
            self.changed["ran in their tenant's lane: theirs is not allowed"] += 1
        application = tenant.applications.get(arrival.application)
        return application.lane if application else tenant.lane


def _with_strangers(
    document: Document, snapshot: PolicySnapshot, strangers: list[str], tier: str | None
) -> PolicySnapshot:
    tiers = {one.name: one for one in document.tiers}
    name = tier or (document.tiers[-1].name if document.tiers else "")
    if name not in tiers:
        has = ", ".join(tiers) or "none"
        raise Invalid(
            [Issue("tiers", None, "", f"tier {name!r} is not in the policy; it has {has}")]
        )
    # Names in traces need not be names that a policy allows: one sound tenant stands for all.
    one = document.model_copy(update={"tenants": [Tenant(name="stranger", tier=name)]})
    model = compile_snapshot(one, (), revision=0, version=0).tenants["stranger"]
    new = {stranger: replace(model, name=stranger) for stranger in strangers}
    return replace(snapshot, tenants=MappingProxyType({**snapshot.tenants, **new}))


def _notes(placing: _Placing, strangers: list[str], snapshot: PolicySnapshot) -> Iterator[str]:
    if strangers:
        tier = snapshot.tenants[strangers[0]].tier
        shown = ", ".join(strangers[:3]) + (", …" if len(strangers) > 3 else "")
        yield f"{len(strangers)} tenants are not in the policy and ran as tier {tier}: {shown}"
    for what, count in placing.changed.items():
        yield f"{count} requests {what}"


def _scenario(snapshot: PolicySnapshot, profile: Profile) -> Scenario:
    config = scheduler_config(snapshot)
    pools = {name: _learnt(config, pool, profile) for name, pool in snapshot.pools.items()}
    return Scenario(
        scheduler=replace(config, pools=pools),
        pools={
            name: PoolRun(profile, pool.cost, pool.isolate_prefix_cache)
            for name, pool in snapshot.pools.items()
        },
        lanes={
            lane.name: LaneRun(lane.engine_priority, lane.max_queue_seconds)
            for lane in snapshot.lanes
        },
    )


def _learnt(config: SchedulerConfig, pool: PoolPolicy, profile: Profile) -> PoolConfig:
    """`capacity: auto` ends where the engine is full, which is known here."""
    wanted = config.pools[pool.model]
    if not pool.capacity.auto:
        return wanted
    slots, load = profile.max_num_seqs, float(profile.kv_tokens)
    ends = tuple(replace(end, max_running=slots, max_load=load) for end in wanted.endpoints)
    return replace(wanted, endpoints=ends)
