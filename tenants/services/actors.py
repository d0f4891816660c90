"""Who changes something, and whether they may."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args

from tenants.core.permissions import Action, can_for
from tenants.errors import NotAllowed
from tenants.selectors import role_of

Source = Literal["page", "api", "command", "admin", "system"]
SOURCES: tuple[Source, ...] = get_args(Source)


@dataclass(frozen=True, slots=True)
class Actor:
    """`name`, `source` and `address` go into the audit entry; `tenant` is set for tenant roles."""

    name: str
    source: Source
    address: str = ""
    role: str = "admin"
    tenant: str | None = None
    user: Any = None


def actor_for(user: Any, source: Source, address: str = "") -> Actor:
    """The signed-in person, or the service that calls with a token."""
    return Actor(user.get_username(), source, address, *role_of(user), user)


def require(actor: Actor, action: Action, tenant: str | None = None) -> None:
    """Raises NotAllowed where `actor` may not do this to an object of `tenant`."""
    if not can_for(actor.role, actor.tenant, action, tenant):
        of = f" of tenant {tenant}" if tenant else ""
        raise NotAllowed(f"role {actor.role or 'none'} does not grant {action}{of}")
