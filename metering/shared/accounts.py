"""The accounts that all gateways share, on a Redis or Valkey server (7 or newer).

1. `reserve` waits for the server, and fails when that is out of reach: then nothing was taken, or
   what was is given back as soon as it hears again.
2. `charge`, `settle` and `release` return at once and are never lost: the line sends them until the
   server has heard them; each counts once, however often it is heard.
3. Of one request only the latest progress is told, some times a second, and none after its end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple, Protocol

from metering.core.accounts import PastUse
from metering.core.hold import Admitted, Hold, RateState, Refused
from metering.shared import wire
from metering.shared.library import STATE, prefix
from tenants.core.snapshot import BudgetPolicy, Limits

PROGRESS_S = 0.2

Call = tuple[str, str, bytes]  # verb, key, message


class Line(Protocol):
    """The way to the server: calls arrive in the order in which they were sent."""

    def send(
        self,
        call: Call,
        then: Callable[[Any], None] | None = None,
        failed: Callable[[Exception], None] | None = None,
    ) -> None:
        """`then` gets the answer. With `failed` it is given up once the server has been out of
        reach for a while; without, it is sent until it has arrived."""


class Look(NamedTuple):
    """What is to be done about a tenant (mending.lua)."""

    tenant: str
    lost: bool  # reservations are missing there, which their gateways have to tell again
    strange: list[tuple[str, str, str | None]]  # of no known gateway: id, whose it is, its entry
    guessed: list[tuple[str, float]]  # settled by an estimate: id, how many seconds ago


class SharedAccounts:
    """One gateway's end of them."""

    def __init__(self, line: Line, replica: str) -> None:
        self.replica = replica
        self._line = line
        self._windows = wire.Windows()
        self._open: dict[str, tuple[Hold, datetime]] = {}
        self._progress: dict[str, Call] = {}

    @property
    def open_ids(self) -> Collection[str]:
        """Of this gateway."""
        return self._open.keys()

    # --- requests --------------------------------------------------------------------------------

    async def reserve(self, hold: Hold, at: datetime) -> Admitted | Refused:
        """
        Raises:
            Exception: the server is out of reach, or has taken this gateway for dead
                (`wire.NotListed`); nothing stays taken.
            ValueError: this request id already has an open reservation.
        """
        message = self.begin(hold, at)
        try:
            answer = await self.call("reserve", prefix(hold.tenant), wire.encode(message))
            return self.decided(hold, at, answer)
        except BaseException:
            self.release(hold.request_id)  # whether the server heard of it is not known
            raise

    def begin(self, hold: Hold, at: datetime) -> wire.Message:
        """For a function that reserves and does more: its message. `decided` or `release` follows.

        Raises:
            ValueError: this request id already has an open reservation.
        """
        if hold.request_id in self._open:
            raise ValueError(f"request {hold.request_id} is already reserved")
        self._open[hold.request_id] = hold, at
        return wire.reserve(hold, at, self._windows, self.replica)

    def decided(self, hold: Hold, at: datetime, answer: Sequence[Any]) -> Admitted | Refused:
        verdict = wire.verdict(hold, at, answer)
        if isinstance(verdict, Refused):
            self.forget(hold.request_id)
        return verdict

    def forget(self, request_id: str) -> None:
        """The server has taken nothing, or has given it back."""
        self._open.pop(request_id, None)
        self._progress.pop(request_id, None)

    def charge(self, request_id: str, tokens: int, cost: float) -> None:
        if (found := self._open.get(request_id)) is not None:
            if not self._progress:
                asyncio.get_running_loop().call_later(PROGRESS_S, self._tell_progress)
            message = wire.ending(request_id, tokens, cost, datetime.now(UTC))
            self._progress[request_id] = "charge", prefix(found[0].tenant), message

    def _tell_progress(self) -> None:
        calls, self._progress = self._progress, {}
        for call in calls.values():
            self._line.send(call)

    def settle(self, request_id: str, tokens: int, cost: float) -> None:
        self._end("settle", request_id, tokens, cost)

    def release(self, request_id: str) -> None:
        self._end("release", request_id, 0, 0.0)

    def asked(self, request_id: str, entry: str) -> None:
        """An engine is asked now: of `entry` its record is made, should this gateway die."""
        if (found := self._open.get(request_id)) is not None:
            message = wire.asked(request_id, entry)
            self._line.send(("asked", prefix(found[0].tenant), message))

    def _end(self, verb: str, request_id: str, tokens: int, cost: float) -> None:
        found = self._open.pop(request_id, None)
        if found is not None:
            message = wire.ending(request_id, tokens, cost, datetime.now(UTC))
            self._progress.pop(request_id, None)
            self._line.send((verb, prefix(found[0].tenant), message))

    # --- reading ---------------------------------------------------------------------------------

    async def rates(self, tenant: str, limits: Limits) -> RateState:
        told = await self.call("rates", prefix(tenant), wire.encode({}))
        return wire.rate_state(limits, told)

    async def budgets(
        self, by_tenant: Mapping[str, Sequence[BudgetPolicy]], at: datetime
    ) -> dict[str, list[dict[str, Any]]]:
        """As `LocalAccounts.budgets`, of many tenants at once."""
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

    # --- what the ledger says --------------------------------------------------------------------

    async def floor(
        self,
        used: Mapping[str, Mapping[BudgetPolicy, float]],
        newest: int,
        at: datetime,
        most: Mapping[str, float] | None = None,
        *,
        gone: bool = False,
    ) -> dict[str, float]:
        """Raise counters that are below the ledger, by `most` of an account at most (None: to what
        the ledger says); account → what it lacked. `used` is by tenant, with the corrections up to
        `newest` contained. `gone`: only those that the server does not have."""
        calls = []
        for tenant, budgets in used.items():
            given = [
                (policy, amount, None if most is None else most.get(policy.account, 0.0))
                for policy, amount in budgets.items()
            ]
            message = wire.ledger_says(given, newest, at, self._windows, gone)
            calls.append(("floor", prefix(tenant), message))
        answers = await self.call_all(calls)
        return {
            policy.account: units
            for budgets, lacks in zip(used.values(), answers, strict=True)
            for policy, units in zip(budgets, lacks, strict=True)
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

    def take_over(self, hold: Hold, at: datetime) -> None:
        """It was let in elsewhere, and is this server's from now on; `adopt` tells it."""
        self._open[hold.request_id] = hold, at

    def renamed(self, name: str) -> None:
        """This gateway was taken for dead: what it held was ended for it. `adopt` tells of all that
        is open here: what waits is reserved anew, and what an engine was asked for keeps the
        estimate that it was settled by until its end is told."""
        self.replica = name

    async def adopt(self) -> None:
        """Tell the server of all that is open here: it may have forgotten."""
        told = dict(self._open)
        calls = [
            (
                "reserve",
                prefix(hold.tenant),
                wire.encode(wire.reserve(hold, at, self._windows, self.replica, adopt=True)),
            )
            for hold, at in told.values()
        ]
        try:
            await self.call_all(calls)
        finally:
            for request_id, (hold, _) in told.items():
                if request_id not in self._open:  # it may have been refused: nobody would end it
                    message = wire.ending(request_id, 0, 0.0, datetime.now(UTC))
                    self._line.send(("release", prefix(hold.tenant), message))

    # --- other gateways --------------------------------------------------------------------------

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

    async def open_of(self, tenant: str) -> list[tuple[str, str | None]]:
        """All that is open, whoever's it is: request, and its entry where an engine was asked."""
        found = await self.call("held", prefix(tenant), wire.encode({}))
        return [(request_id, entry or None) for request_id, entry in found]

    async def look(self, tenants: Sequence[str], known: Sequence[str]) -> list[Look]:
        """`known`: gateways that live, or whose end is being done."""
        message = wire.encode({"known": known})
        answers = await self.call_all([("look", prefix(tenant), message) for tenant in tenants])
        return [
            Look(
                tenant, bool(lost), [(id, of, entry or None) for id, of, entry in strange], guessed
            )
            for tenant, (lost, strange, guessed) in zip(tenants, answers, strict=True)
        ]

    def known_now(self, tenant: str, request_id: str, tokens: int, cost: float) -> None:
        """What was settled by an estimate has a record of its own now. Counts once."""
        message = wire.ending(request_id, tokens, cost, datetime.now(UTC))
        self._line.send(("settle", prefix(tenant), message))

    def end_for_another(
        self, tenant: str, request_id: str, tokens: int = 0, cost: float | None = None
    ) -> None:
        """Settle what another gateway left, by its estimate; without a `cost` it never ran."""
        verb = "release" if cost is None else "settle"
        message = wire.ending(
            request_id, tokens, cost or 0.0, datetime.now(UTC), guess=cost is not None
        )
        self._line.send((verb, prefix(tenant), message))

    async def ask(self, verb: str, **message: Any) -> Any:
        """Of what belongs to no tenant (replicas.lua)."""
        return await self.call(verb, STATE, wire.encode({"replica": self.replica, **message}))

    # --- the server ------------------------------------------------------------------------------

    async def call(self, verb: str, key: str, message: bytes) -> Any:
        return (await self.call_all([(verb, key, message)]))[0]

    async def call_all(self, calls: Sequence[Call]) -> list[Any]:
        loop = asyncio.get_running_loop()
        waiting: list[asyncio.Future[Any]] = [loop.create_future() for _ in calls]
        for call, answer in zip(calls, waiting, strict=True):
            fail = told(answer.set_exception, answer)
            self._line.send(call, told(answer.set_result, answer), fail)
        answers = await asyncio.gather(*waiting, return_exceptions=True)
        for given in answers:
            if isinstance(given, BaseException):
                raise given
        return answers


def told(tell: Callable[[Any], None], answer: asyncio.Future[Any]) -> Callable[[Any], None]:
    """Whoever waited may have gone."""
    return lambda what: None if answer.done() else tell(what)
