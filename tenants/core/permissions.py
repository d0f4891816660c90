"""Who may do what: one table, and one rule for whose objects.

1. What the table does not grant is refused.
2. A tenant role reaches its own tenant's objects only, whatever the action.
"""

from __future__ import annotations

from typing import Literal, get_args

from tenants.core.issue import refused, short

RoleName = Literal["admin", "operator", "tenant-admin", "tenant-viewer"]
Action = Literal[
    "policy.view",
    "policy.edit",
    "keys.view",
    "keys.edit",
    "users.view",
    "users.edit",
    "usage.view",
    "live.view",
    "audit.view",
    "alerts.view",
    "alerts.edit",
    "simulations.run",
    "account.edit",
]

ROLES: tuple[RoleName, ...] = get_args(RoleName)
TENANT_ROLES: frozenset[str] = frozenset({"tenant-admin", "tenant-viewer"})
EVERYBODY: frozenset[str] = frozenset(ROLES)
PLATFORM: frozenset[str] = frozenset({"admin", "operator"})
ADMIN: frozenset[str] = frozenset({"admin"})

TABLE: dict[Action, frozenset[str]] = {
    "policy.view": PLATFORM,
    "policy.edit": ADMIN,
    "keys.view": EVERYBODY,
    "keys.edit": frozenset({"admin", "tenant-admin"}),
    "users.view": PLATFORM,
    "users.edit": ADMIN,
    "usage.view": EVERYBODY,
    "live.view": PLATFORM,
    "audit.view": PLATFORM,
    "alerts.view": PLATFORM,
    "alerts.edit": ADMIN,
    "simulations.run": PLATFORM,
    "account.edit": EVERYBODY,  # one's own: password, authenticator, token
}


def can(role: str, action: Action) -> bool:
    return role in TABLE[action]


def can_for(role: str, own_tenant: str | None, action: Action, tenant: str | None) -> bool:
    """May this role act on an object of `tenant`? None is an object of no tenant, or of all."""
    if not can(role, action):
        return False
    return role not in TENANT_ROLES or (tenant is not None and tenant == own_tenant)


def role_fits(role: str, tenant: str | None) -> None:
    """Raises Invalid: tenant roles need a tenant, the others take none."""
    if role not in ROLES:
        allowed = ", ".join(ROLES)
        raise refused("role", role, f"role is {short(role)}; it takes one of: {allowed}")
    if role in TENANT_ROLES and not tenant:
        raise refused("tenant", tenant, f"role {role} needs a tenant")
    if role not in TENANT_ROLES and tenant:
        raise refused("tenant", tenant, f"role {role} is for all tenants and takes none")
