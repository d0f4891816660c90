"""Gateways' shared states in one process, on a real server; the ledger is a list."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

from msgspec.structs import replace

from gateway.admission import Plan
from gateway.policy import scheduler_config
from gateway.shared.state import SharedState
from metering.core.cut import Cut
from metering.core.record import UsageRecord
from metering.journal import OpenEntry
from tenants.core.snapshot import PolicySnapshot
from tests.calm import calm_zone
from tests.unit.gateway import cast
from tests.unit.gateway.cast import A

PATIENCE_S = 60.0

Start = Callable[..., Awaitable["Gateway"]]  # name, opens, and what the policy is to be


class Lines:
    """A journal."""

    def __init__(self) -> None:
        self.records: list[UsageRecord] = []
        self.cuts: list[Cut] = []
        self.ended, self.cut = self.records.append, self.cuts.append


def policy(places: int = 2, **alice: Any) -> PolicySnapshot:
    one = {"max_running": places, "max_running_tokens": 100_000}
    alice = {"timezone": calm_zone(), **alice}
    return cast.snapshot(alice=alice, pool={"endpoints": [{"url": A}], "capacity": one})


def plan(snapshot: PolicySnapshot, id: str) -> Plan:
    """As if it came now: the ledger is asked for windows of this moment."""
    return replace(cast.plan(snapshot, id=id), at=datetime.now(UTC))


def entry(made: Plan) -> OpenEntry:
    return OpenEntry(
        request_id=made.hold.request_id,
        at=made.at,
        tenant=made.hold.tenant,
        prompt_tokens=10,
        completion_tokens=20,
        estimated_cost=made.hold.cost,
        accounts=made.accounts,
    )


async def until(true: Callable[[], Any], what: str) -> Any:
    deadline = asyncio.get_running_loop().time() + PATIENCE_S
    while not (found := true()):
        assert asyncio.get_running_loop().time() < deadline, f"in vain: {what}"
        await asyncio.sleep(0.01)
    return found


class Gateway:
    """A state with its background steps running, as gateway.service runs them."""

    def __init__(self, name: str, url: str, opens: bool, snapshot: PolicySnapshot) -> None:
        self.snapshot = snapshot
        self.journal = Lines()
        self.state = SharedState(name, self._in_thread, url, opens=opens)
        self._steps: list[asyncio.Task[None]] = []
        self.stopped = False

    async def _in_thread(self, work: Callable[[], Any]) -> Any:
        return work()

    async def start(self, joins: bool = True) -> Gateway:
        config = scheduler_config(self.snapshot)
        await self.state.load(self.snapshot, config, datetime.now(UTC))
        for step, every_s, name in self.state.open(self.journal):  # type: ignore[arg-type]
            self._steps.append(asyncio.create_task(self._keep(step, every_s), name=name))
        if joins:
            await until(lambda: self.state._members.live, "it is on the list")
        return self

    async def _keep(self, step: Any, every_s: float) -> None:
        while True:
            try:
                await step()
            except Exception as error:
                self.failed = error
            await asyncio.sleep(every_s)

    def admit(self, id: str) -> asyncio.Task[Any]:
        return asyncio.create_task(self.state.admit(plan(self.snapshot, id)))

    async def cut_off(self) -> None:
        """Nothing that it says reaches the server any more; to others it is dead."""
        await self._turn_to(1)

    async def reconnect(self) -> None:
        await self._turn_to(self._port)

    async def _turn_to(self, port: int) -> None:
        pool = self.state._redis.connection_pool
        self._port, pool.connection_kwargs["port"] = pool.connection_kwargs["port"], port
        for connection in (*pool._available_connections, *pool._in_use_connections):
            connection.port = port
            await connection.disconnect()

    async def stop(self) -> None:
        if self.stopped:
            return
        self.stopped = True
        for task in self._steps:
            task.cancel()
        await asyncio.gather(*self._steps, return_exceptions=True)
        await self.state.aclose()

    async def budget(self) -> dict[str, Any]:
        budgets = self.snapshot.tenants["alice"].budgets
        found = await self.state.accounts.budgets({"alice": budgets}, datetime.now(UTC))
        return found["alice"][0]

    async def budget_once(self, true: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Wait until it is so."""
        async with asyncio.timeout(PATIENCE_S):
            while not true(shown := await self.budget()):
                await asyncio.sleep(0.02)
        return shown
