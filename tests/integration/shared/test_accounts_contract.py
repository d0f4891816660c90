"""What holds of the accounts of one process holds of those on a server: the same tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import valkey
from hypothesis import Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.integration.shared.accounts_on_redis import RedisAccounts
from tests.unit.metering import test_accounts
from tests.unit.metering.test_accounts_random import Accounting

OWN = {"remembered_tenants", "_tenants"}  # what is idle goes by the server's clock

globals().update(
    {
        name: test
        for name, test in vars(test_accounts).items()
        if name.startswith("test_") and not OWN & set(test.__code__.co_names)
    }
)


@pytest.fixture
def accounts(client: valkey.Valkey) -> Iterator[RedisAccounts]:
    return RedisAccounts(client)


def test_used_is_what_was_settled_in_any_interleaving(client: valkey.Valkey) -> None:
    class OnServer(Accounting):
        def __init__(self) -> None:
            super().__init__()
            client.flushdb()
            self.accounts = RedisAccounts(client)

    steps = settings(
        max_examples=20, stateful_step_count=40, phases=[Phase.explicit, Phase.generate]
    )
    run_state_machine_as_test(OnServer, settings=steps)
