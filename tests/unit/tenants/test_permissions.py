"""Who may do what."""

import pytest

from tenants.core.permissions import ROLES, TABLE, Action, can, can_for


def test_an_admin_may_everything() -> None:
    assert all(can("admin", action) for action in TABLE)


def test_an_operator_changes_nothing_but_their_own_account() -> None:
    granted = {action for action in TABLE if can("operator", action)}
    assert {action for action in granted if action.endswith(".edit")} == {"account.edit"}
    assert {"policy.view", "audit.view", "live.view", "usage.view"} <= granted


def test_a_tenant_admin_sees_usage_and_manages_keys() -> None:
    assert {action for action in TABLE if can("tenant-admin", action)} == {
        "keys.view", "keys.edit", "usage.view", "account.edit"
    }  # fmt: skip


def test_a_tenant_viewer_only_looks() -> None:
    assert {action for action in TABLE if can("tenant-viewer", action)} == {
        "keys.view", "usage.view", "account.edit"
    }  # fmt: skip


@pytest.mark.parametrize("role", ["", "root", "Admin", "tenant"])
def test_an_unknown_role_may_nothing(role: str) -> None:
    assert not any(can(role, action) for action in TABLE)


@pytest.mark.parametrize("action", TABLE)
@pytest.mark.parametrize("role", [role for role in ROLES if role.startswith("tenant-")])
def test_a_tenant_role_never_reaches_another_tenants_objects(role: str, action: Action) -> None:
    assert can_for(role, "acme", action, "acme") == can(role, action)
    assert not can_for(role, "acme", action, "bricks")
    assert not can_for(role, "acme", action, None)
    assert not can_for(role, None, action, None)
