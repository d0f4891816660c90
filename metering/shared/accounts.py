"""The accounts that all gateways share, on a Redis or Valkey server (7 or newer).

1. `reserve` waits for the server, and fails when that is out of reach: then nothing was taken, or
   what was is given back as soon as it hears again.
2. `charge`, `settle` and `release` return at once and are never lost: they go out in order and in
   batches, again and again until the server has them (outbox.py); each counts once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from redis.asyncio import Redis
from redis.exceptions import RedisError, ResponseError

from metering.core.accounts import PastUse
from metering.core.hold import Admitted, Hold, RateState, Refused
from metering.shared import wire
from metering.shared.library import STATE, library, prefix
from metering.shared.outbox import Call, Outbox
from tenants.core.snapshot import BudgetPolicy, Limits

OUT_OF_REACH = (RedisError, OSError, TimeoutError)
BATCH = 500  # calls in one pipeline


class SharedAccounts:
    """`metering.seam.SharedAccounts`."""

    def __init__(self, redis: Redis, replica: str) -> None:
        self.replica = replica
        self._redis = redis
        self._function, self._text = library()
        self._windows = wire.Windows()
        self._open: dict[str, tuple[Hold, datetime]] = {}
        self.outbox = Outbox(self._send)

    @property
    def open_reservations(self) -> int:
        """Of this gateway."""
        return len(self._open)

    # --- requests -------------------------------------------------------------------------------

    async def reserve(self, hold: Hold, at: datetime) -> Admitted | Refused:
        """
        Raises:
            OUT_OF_REACH: nothing stays taken.
        """
        message = wire.reserve(hold, at, self._windows, self.replica)
        self._open[hold.request_id] = hold, at
        try:
            answer = await self.call("reserve", prefix(hold.tenant), message)
            verdict = wire.verdict(hold, at, answer)
        except BaseException:
            self.release(hold.request_id)  # whether the server heard of it is not known
            raise
        if isinstance(verdict, Refused):
            del self._open[hold.request_id]
        return verdict

    def charge(self, request_id: str, tokens: int, cost: float) -> None:
        if (found := self._open.get(request_id)) is not None:
            message = wire.ending(request_id, tokens, cost, datetime.now(UTC))
            self.outbox.progress(request_id, "charge", prefix(found[0].tenant), message)

    def settle(self, request_id: str, tokens: int, cost: float) -> None:
        self._end("settle", request_id, tokens, cost)

    def release(self, request_id: str) -> None:
        self._end("release", request_id, 0, 0.0)

    def asked(self, request_id: str, entry: bytes) -> None:
        """An engine is asked now: of `entry` its record is made, should this gateway die."""
        if (found := self._open.get(request_id)) is not None:
            message = wire.asked(request_id, entry)
            self.outbox.put("asked", prefix(found[0].tenant), message)

    def _end(self, verb: str, request_id: str, tokens: int, cost: float) -> None:
        found = self._open.pop(request_id, None)
        if found is not None:
            message = wire.ending(request_id, tokens, cost, datetime.now(UTC))
            self.outbox.put(verb, prefix(found[0].tenant), message, ends=request_id)

    # --- reading ----------------------------------------------------------------------------------

    async def rates(self, tenant: str, limits: Limits) -> RateState:
        told = await self.call("rates", prefix(tenant), wire.encode({}))
        return wire.rate_state(limits, told)

    async def budgets(
        self, by_tenant: Mapping[str, Sequence[BudgetPolicy]], at: datetime
    ) -> dict[str, list[dict[str, Any]]]:
        """As `metering.seam.Accounts.budgets`, of many tenants at once."""
        asked = {tenant: budgets for tenant, budgets in by_tenant.items() if budgets}
        calls = [
            ("shown", prefix(tenant), wire.about(budgets, at, self._windows))
            for tenant, budgets in asked.items()
        ]
        answers = await self.call_all(calls)
        found = {
            tenant: wire.shown(budgets, answer, at)
            for (tenant, budgets), answer in zip(asked.items(), answers, strict=True)
        }
        return {tenant: found.get(tenant, []) for tenant in by_tenant}

    # --- what the ledger says -----------------------------------------------------------------------

    async def floor(
        self,
        used: Mapping[str, Sequence[tuple[BudgetPolicy, float]]],
        newest: int,
        at: datetime,
    ) -> dict[str, float]:
        """No counter stays below the ledger: account → by how much it was raised. `used` is by
        tenant, with the corrections up to `newest` contained."""
        calls = [
            ("floor", prefix(tenant), wire.ledger_says(pairs, newest, at, self._windows))
            for tenant, pairs in used.items()
        ]
        answers = await self.call_all(calls)
        return {
            policy.account: units
            for pairs, raised in zip(used.values(), answers, strict=True)
            for (policy, _), units in zip(pairs, raised, strict=True)
            if units
        }

    async def correct(
        self, tenant: str, policy: BudgetPolicy, units: float, number: int, at: datetime
    ) -> None:
        message = wire.correction(policy, units, number, at, self._windows)
        await self.call("correct", prefix(tenant), message)

    async def past(self, recent: Iterable[PastUse]) -> None:
        by_tenant: dict[str, list[PastUse]] = {}
        for each in recent:
            by_tenant.setdefault(each.tenant, []).append(each)
        await self.call_all(
            [("past", prefix(tenant), wire.past(past)) for tenant, past in by_tenant.items()]
        )

    async def adopt(self) -> None:
        """Tell the server of all that is open here: it may have forgotten."""
        await self.call_all(
            [
                (
                    "reserve",
                    prefix(hold.tenant),
                    wire.reserve(hold, at, self._windows, self.replica, adopt=True),
                )
                for hold, at in self._open.values()
            ]
        )

    # --- other gateways -------------------------------------------------------------------------------

    async def held_by(
        self, replica: str, tenants: Sequence[str]
    ) -> list[tuple[str, str, str | None]]:
        """What a dead gateway left: tenant, request, and its entry where an engine was asked."""
        message = wire.encode({"replica": replica})
        answers = await self.call_all([("held", prefix(tenant), message) for tenant in tenants])
        return [
            (tenant, request_id, entry or None)
            for tenant, found in zip(tenants, answers, strict=True)
            for request_id, entry in found
        ]

    def end_for_another(
        self, tenant: str, request_id: str, tokens: int = 0, cost: float | None = None
    ) -> None:
        """Settle what another gateway left; without a `cost` it never ran."""
        verb = "release" if cost is None else "settle"
        message = wire.ending(request_id, tokens, cost or 0.0, datetime.now(UTC))
        self.outbox.put(verb, prefix(tenant), message)

    async def ask(self, verb: str, **message: Any) -> Any:
        """Of what belongs to no tenant (replicas.lua)."""
        return await self.call(verb, STATE, wire.encode({"replica": self.replica, **message}))

    # --- the server -----------------------------------------------------------------------------------

    async def call(self, verb: str, key: str, message: bytes) -> Any:
        return (await self.call_all([(verb, key, message)]))[0]

    async def call_all(self, calls: Sequence[Call]) -> list[Any]:
        found: list[Any] = []
        for start in range(0, len(calls), BATCH):
            raw = await self._send(calls[start : start + BATCH])
            found.extend(map(wire.decode, raw))
        return found

    async def _send(self, calls: Sequence[Call]) -> list[bytes]:
        try:
            return await self._send_once(calls)
        except ResponseError as error:
            if "Function not found" not in str(error):
                raise
            await self._redis.function_load(self._text, replace=True)
            return await self._send_once(calls)

    async def _send_once(self, calls: Sequence[Call]) -> list[bytes]:
        if len(calls) == 1:
            return [
                await self._redis.fcall(self._function, 1, calls[0][1], calls[0][0], calls[0][2])
            ]
        pipeline = self._redis.pipeline(transaction=False)
        for verb, key, message in calls:
            pipeline.fcall(self._function, 1, key, verb, message)
        found: list[bytes] = await pipeline.execute()
        return found
