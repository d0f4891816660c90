"""`LocalAccounts`' own interface over the functions on a server, with the test's clock."""

from __future__ import annotations

from typing import Any

import valkey

from metering.core.windows import Window
from metering.shared import wire
from metering.shared.library import STATE, prefix, source

NAME = "accounts_test"
TEXT = f"#!lua name=accounts_test\nlocal VERSION = 'test'\n{source()}"


class RedisAccounts:
    """As `metering.core.accounts.LocalAccounts`; one test at a time on a server."""

    def __init__(self, client: valkey.Valkey, replica: str = "a") -> None:
        self._client = client
        self._windows = wire.Windows()
        self._replica = replica
        self._tenants: dict[str, str] = {}  # request -> tenant
        joins = wire.encode({"replica": replica, "lease_s": 5.0, "joins": True})
        client.fcall(NAME, 1, STATE, b"beat " + joins, "0")

    def call(self, verb: str, tenant: str, message: bytes, now: float) -> Any:
        clock = f"{now:.17g}"
        raw = self._client.fcall(NAME, 1, prefix(tenant), verb.encode() + b" " + message, clock)
        return wire.decode(raw)

    @property
    def open_reservations(self) -> int:
        return sum(self._client.hlen(key) for key in self._client.keys("fl:accounts:{*}:open"))

    def reserve(self, hold, now, at):
        if self._client.hexists(f"{prefix(hold.tenant)}open", hold.request_id):
            raise ValueError(f"{hold.request_id} is already reserved")  # as SharedAccounts
        message = wire.encode(wire.reserve(hold, at, self._windows, self._replica))
        answer = self.call("reserve", hold.tenant, message, now)
        self._tenants[hold.request_id] = hold.tenant
        return wire.verdict(hold, at, answer)

    def _end(self, verb, request_id, tokens, cost, now, at):
        tenant = self._tenants.get(request_id, "alice")
        return self.call(verb, tenant, wire.ending(request_id, tokens, cost, at), now)

    def charge(self, request_id, tokens, cost, now, at=None):
        from tests.unit.metering.policies import NOON

        self._end("charge", request_id, tokens, cost, now, at or NOON)

    def settle(self, request_id, tokens, cost, now, at):
        self._end("settle", request_id, tokens, cost, now, at)

    def release(self, request_id, now, at):
        self._end("release", request_id, 0, 0.0, now, at)

    def rates(self, tenant, limits, now):
        return wire.rate_state(limits, self.call("rates", tenant, wire.encode({}), now))

    def budgets(self, budgets, now, at):
        message = wire.about(budgets, at, self._windows)
        return wire.shown(budgets, self.call("shown", "alice", message, now), at)

    def restore(self, used, recent, now, at):
        given = [(policy, amount, None) for policy, amount in used]
        message = wire.ledger_says(given, 0, at, self._windows)
        self.call("floor", "alice", message, now)
        by_tenant: dict[str, list] = {}
        for each in recent:
            by_tenant.setdefault(each.tenant, []).append(each)
        for tenant, past in by_tenant.items():
            self.call("past", tenant, wire.past(past), now)

    def correct(self, policy, units, now, at, number=1):
        message = wire.correction(policy, units, number, at, self._windows)
        self.call("correct", "alice", message, now)

    def windows(self, account):
        raw = self._client.get(f"{prefix('alice')}window:{account}")
        return [
            (Window(wire.instant(each["from"]), wire.instant(each["to"])), each["used"])
            for each in (wire.decode(raw)["counters"] if raw else ())
        ]
