"""What a gateway tells of this moment: the live state, for console, API and metrics."""

from __future__ import annotations

from collections.abc import Callable, Collection
from datetime import datetime
from typing import Any

from gateway.calls import Calls
from gateway.state import State
from gateway.upstream.engines import Engines
from gateway.upstream.loads import LoadWatch
from metering.restore import budgets_by_tenant
from tenants.core.snapshot import BudgetPolicy, PolicySnapshot, PoolPolicy

MOST_SHOWN_IDLE = 200
MOST_SHOWN_BUDGETS = 100  # of one tenant; its own come first


class Telling:
    def __init__(
        self,
        gateway: str,
        calls: Calls,
        state: State,
        engines: Engines,
        loads: LoadWatch,
        fault: Callable[[str, str], str],
    ) -> None:
        """`fault(pool, url)`: what is wrong with an endpoint; empty where nothing is known."""
        self._gateway = gateway
        self._calls = calls
        self._state = state
        self._engines = engines
        self._loads = loads
        self._fault = fault
        self._owned: tuple[PolicySnapshot | None, dict[str, tuple[BudgetPolicy, ...]]] = (None, {})

    def live(self, at: datetime) -> dict[str, Any]:
        """The shape is in docs/architecture.md, "Live state"."""
        return self._told(self._state.live(), at)

    async def sample(self, at: datetime) -> dict[str, Any]:
        """As `live`, with what others have to tell first."""
        live = self._state.live()
        await self._state.look(self._shown_budgets(live["tenants"]), at)
        return self._told(live, at)

    def _told(self, live: dict[str, Any], at: datetime) -> dict[str, Any]:
        snapshot = self._calls.snapshot
        for model, pool in live["pools"].items():
            policy = snapshot.pools.get(model)
            if policy is not None:
                pool["tokenizer"] = self._calls.counter.state(policy)
            for url, endpoint in pool["endpoints"].items():
                endpoint |= self._engine_state(model, url, policy)
        if self._state.tells:
            self._add_budgets(live["tenants"], at)
        return {
            "gateway": self._gateway,
            "at": at.isoformat().replace("+00:00", "Z"),
            "revision": snapshot.revision,
            "version": snapshot.version,
            "state": self._state.name,
            "state_since": self._state.since.isoformat().replace("+00:00", "Z"),
            "state_fault": self._state.trouble,
            **live,
        }

    def _engine_state(self, model: str, url: str, policy: PoolPolicy | None) -> dict[str, Any]:
        """What an endpoint's engine told of itself, and what was seen of it."""
        facts = self._engines.facts.of(model, url)
        several = len({lane.engine_priority for lane in self._calls.snapshot.lanes}) > 1
        ignored = policy is not None and self._engines.ignores_priority(policy, url)
        return {
            "fault": self._fault(model, url),
            "simulated": facts.simulated,
            "version": facts.version,
            "fingerprint": facts.fingerprint,
            "priority_ignored": several and ignored,
            **self._loads.live((model, url)),
        }

    def _add_budgets(self, tenants: dict[str, Any], at: datetime) -> None:
        shown = self._shown_budgets(tenants)
        for name, budgets in self._state.budgets(shown, at).items():
            tenants.setdefault(name, {"running": 0, "queued": 0})["budgets"] = budgets

    def _shown_budgets(self, active: Collection[str]) -> dict[str, tuple[BudgetPolicy, ...]]:
        """Of every tenant while they are few; of many, those that have requests now."""
        known = self._calls.snapshot.tenants
        names = {*active, *known} if len(known) <= MOST_SHOWN_IDLE else {*active}
        owned = self._owned_budgets()
        return {name: owned.get(name, ()) for name in sorted(names)}

    def _owned_budgets(self) -> dict[str, tuple[BudgetPolicy, ...]]:
        """Of each tenant, its applications and its keys; gathered once for each policy."""
        of, found = self._owned
        if of is not self._calls.snapshot:
            of = self._calls.snapshot
            found = {
                tenant: tuple(budgets.values())[:MOST_SHOWN_BUDGETS]
                for tenant, budgets in budgets_by_tenant(of).items()
            }
            self._owned = of, found
        return found
