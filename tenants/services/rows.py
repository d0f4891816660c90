"""Rows that a change hangs something on."""

from __future__ import annotations

from typing import Any

from django.contrib.auth import get_user_model

from tenants.core.text import plain
from tenants.errors import NotFound
from tenants.models import Tenant


def tenant_row(name: str) -> Tenant:
    """Raises NotFound unless the tenant is in the policy."""
    found = Tenant.objects.filter(name=plain(name), in_policy=True).first()
    if found is None or found.name != name:
        raise NotFound(f"there is no tenant {name!r}")
    return found


def user_row(username: str) -> Any:
    """Raises NotFound unless somebody has exactly this name."""
    users = get_user_model()._default_manager.select_related("membership__tenant")
    found = users.filter(username=plain(username)).first()
    if found is None or found.get_username() != username:
        raise NotFound(f"there is no user {username!r}")
    return found
