"""What a tenant that left costs the server: nothing, after a while."""

from __future__ import annotations

import valkey

from tests.integration.shared.accounts_on_redis import RedisAccounts
from tests.unit.metering.policies import NOON, admitted, burst, hold, sustained


def test_what_is_idle_goes_and_what_is_held_stays(client: valkey.Valkey) -> None:
    accounts = RedisAccounts(client)
    budgets = burst(100, 10), sustained(1_000)
    one = hold(*budgets, cost=5, interaction="one")
    admitted(accounts.reserve(one, 1_000.0, NOON))
    assert {key: client.ttl(key) for key in client.keys("*:[ubow]*")} == {
        b"fl:accounts:{alice}:use": -1,
        b"fl:accounts:{alice}:burst:tenant:alice/burst": -1,
        b"fl:accounts:{alice}:window:tenant:alice/hourly": -1,
        b"fl:accounts:{alice}:open": -1,
    }
    accounts.settle(one.request_id, 10, 5.0, 1_000.0, NOON)
    assert all(0 < client.ttl(key) <= 2 * 3_600 for key in client.keys("fl:accounts:*"))
    assert not client.exists("fl:accounts:{alice}:open")
