"""Which audit entries are about what; every condition here has an index of its table."""

from __future__ import annotations

from django.db import connection
from django.db.models import Q

from tenants.models import AccessToken, ApiKey, Membership


def begins(name: str) -> Q:
    """SQLite finds no index for a beginning, but one for a range, and orders by code point."""
    found = Q(name__startswith=name)
    if connection.vendor == "sqlite":
        found &= Q(name__gte=name, name__lt=f"{name}\U0010ffff")
    return found


def about_tenant(name: str) -> Q:
    """Of the tenant itself and of what belongs to it: applications, keys, counters of its budgets,
    and the people and tokens that are its own now."""
    own = {
        "tenant": [name],
        "key": ApiKey.objects.filter(tenant__name=name).values_list("public_id", flat=True),
        "user": Membership.objects.filter(tenant__name=name).values_list(
            "user__username", flat=True
        ),
        "token": AccessToken.objects.filter(tenant__name=name, user=None).values_list(
            "name", flat=True
        ),
    }
    found = Q(kind="application") & begins(f"{name}/")
    for kind, names in own.items():
        found |= Q(kind=kind, name__in=list(names))
    for start in (f"tenant:{name}/", f"application:{name}/"):
        found |= Q(kind="budget_counter") & begins(start)
    return found
