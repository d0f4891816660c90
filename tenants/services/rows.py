"""Rows that a change hangs something on."""

from __future__ import annotations

from tenants.core.text import plain
from tenants.errors import NotFound
from tenants.models import Tenant


def tenant_row(name: str) -> Tenant:
    """Raises NotFound unless the tenant is in the policy."""
    found = Tenant.objects.filter(name=plain(name), in_policy=True).first()
    if found is None or found.name != name:
        raise NotFound(f"there is no tenant {name!r}")
    return found
