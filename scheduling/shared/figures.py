"""What was last heard of the pools: the answers to everything that is read without waiting."""

from __future__ import annotations

from typing import Any

from scheduling.core.learning import Held


class Figures:
    """By pool, as figures.lua tells them; `tenants` by pool too: on a cluster each pool counts
    its own. Lua has one kind of table: what is empty comes as a list."""

    def __init__(self) -> None:
        self._pools: dict[str, dict[str, Any]] = {}
        self._tenants: dict[str, dict[str, list[int]]] = {}
        self._together = True

    def note(self, pool: str, figures: dict[str, Any], tenants: dict[str, list[int]] | Any) -> None:
        self._pools[pool] = figures
        self._tenants[pool] = dict(tenants)
        for name in ("endpoints", "lanes", "waits"):
            figures[name] = dict(figures[name])
        for lane in figures["lanes"].values():
            lane["tenants"] = dict(lane["tenants"])

    def keep(self, pools: set[str], *, together: bool) -> None:
        """Forget the others; `together`: every answer told of the tenants of all pools."""
        self._pools = {name: f for name, f in self._pools.items() if name in pools}
        self._tenants = {name: t for name, t in self._tenants.items() if name in pools}
        self._together = together

    def held(self, pool: str, endpoint: str) -> Held | None:
        found = self._pools.get(pool)
        end = found["endpoints"].get(endpoint) if found else None
        if found is None or end is None:
            return None
        return Held(end["running"], float(end["load"]), wanted=found["queued"] > 0)

    def queued(self, tenant: str) -> int:
        return self.tenants().get(tenant, {}).get("queued", 0)

    def backlogged(self, pool: str, lane: str) -> bool:
        return bool(self._wait(pool, lane)[0])

    def expected_wait_s(self, pool: str, lane: str) -> float:
        return float(self._wait(pool, lane)[1])

    def _wait(self, pool: str, lane: str) -> list[Any]:
        found = self._pools.get(pool)
        waits: list[Any] = found["waits"].get(lane, [False, 0.0]) if found else [False, 0.0]
        return waits

    def tenants(self) -> dict[str, dict[str, int]]:
        out: dict[str, dict[str, int]] = {}
        for tenants in self._tenants.values():
            for name, (running, queued) in tenants.items():
                sums = out.setdefault(name, {"running": 0, "queued": 0})
                if self._together:
                    sums["running"], sums["queued"] = running, queued
                else:
                    sums["running"] += running
                    sums["queued"] += queued
        return out

    def live(self) -> dict[str, Any]:
        """The shape is in docs/architecture.md, "Live state"."""
        pools = {
            name: {
                "endpoints": figures["endpoints"],
                "lanes": figures["lanes"],
                "bound_units": float(figures["bound_units"]),
                "units_per_second": figures["units_per_second"] or None,
            }
            for name, figures in self._pools.items()
            if not figures["removed"]
        }
        return {"pools": pools, "tenants": self.tenants()}
