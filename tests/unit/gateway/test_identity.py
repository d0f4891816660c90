"""Who asks is decided by the key alone."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from types import MappingProxyType

import pytest

from gateway.errors import ApiError, Outcome
from gateway.identity import identify, identity_of
from tenants.core.snapshot import PolicySnapshot
from tests.unit.gateway.cast import AT, SECRET, digest, snapshot, who


def refused(secret: bytes, policy: PolicySnapshot | None = None, at: datetime = AT) -> ApiError:
    with pytest.raises(ApiError) as caught:
        identify(policy or snapshot(), secret, at)
    assert caught.value.outcome is Outcome.INVALID_API_KEY
    assert secret.decode() not in caught.value.message
    return caught.value


def test_a_key_of_a_tenant_counts_under_no_application_and_in_the_tenants_lane() -> None:
    found = who(snapshot(), "alice")
    assert (found.tenant.name, found.key.id) == ("alice", "keyalice")
    assert (found.application.name, found.application.lane) == ("", "standard")
    assert found.application.budgets == ()


def test_a_key_of_an_application_counts_under_it() -> None:
    found = who(snapshot(), "bot")
    assert (found.tenant.name, found.application.name) == ("alice", "bot")
    assert (found.application.lane, found.application.weight) == ("critical", 3)


def test_an_unknown_key_is_refused() -> None:
    assert "not known" in refused(b"something-else").message


def test_a_key_is_refused_from_the_very_moment_of_its_expiry() -> None:
    refused(SECRET["old"])
    refused(SECRET["old"], at=AT - timedelta(seconds=1))
    before = AT - timedelta(seconds=1, microseconds=1)
    assert identify(snapshot(), SECRET["old"], before).key.id == "keyold"


def test_a_suspended_tenants_key_is_known_so_that_its_refusals_are_recorded() -> None:
    assert who(snapshot(), "sam").tenant.enabled is False


def test_a_key_whose_tenant_left_the_policy_opens_nothing() -> None:
    policy = snapshot()
    tenants = {name: t for name, t in policy.tenants.items() if name != "bob"}
    torn = replace(policy, tenants=MappingProxyType(tenants))
    assert "tenant is no longer" in refused(SECRET["bob"], torn).message


def test_a_key_whose_application_left_the_policy_opens_nothing() -> None:
    policy = snapshot()
    bare = replace(policy.tenants["alice"], applications=MappingProxyType({}))
    torn = replace(policy, tenants=MappingProxyType({**policy.tenants, "alice": bare}))
    assert "'bot' is no longer" in refused(SECRET["bot"], torn).message


def test_a_waiting_call_is_judged_again_by_the_digest_of_its_key() -> None:
    assert identity_of(snapshot(), digest("bot"), AT) == who(snapshot(), "bot")
    with pytest.raises(ApiError):
        identity_of(snapshot(without=("bot",)), digest("bot"), AT)
