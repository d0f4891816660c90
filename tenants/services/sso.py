"""People who sign in through an identity provider: an account at the first time, and a role where
the provider's claim says one.

1. Nobody is taken for an account that is there already because a name or address fits.
2. A role that came from the claim follows it at each sign-in, and goes when the claim does.
3. A role that an admin gave by hand stays while the claim says none.
"""

from __future__ import annotations

from typing import Any

import structlog
from django.contrib.auth import get_user_model
from django.db import transaction

from tenants.core.issue import Invalid
from tenants.errors import NotFound
from tenants.models import Membership
from tenants.services.actors import Actor
from tenants.services.audit import record
from tenants.services.users import change_role, not_the_last_admin

log = structlog.get_logger("fairlane.sso")

Mapped = tuple[str, str | None]  # role, tenant
REASON = "as the identity provider says"


def signs_in_by_sso(user: Any) -> bool:
    """Whoever came through a provider has no password here, unless an admin has set one."""
    return not user.has_usable_password()


def free_name(wanted: str) -> str:
    """`wanted`, or the first of `wanted-2`, `wanted-3`, … that nobody has."""
    users = get_user_model()._default_manager
    name, count = wanted[:140], 1
    while users.filter(username__iexact=name).exists():
        count += 1
        name = f"{wanted[:140]}-{count}"
    return name


def record_arrival(user: Any, actor: Actor) -> None:
    """The account was just made; it has no role yet."""
    record(actor, "user", user.get_username(), new={"role": None, "sign_in": "sso"}, reason=REASON)


def follow_claim(user: Any, mapped: Mapped | None, *, actor: Actor) -> None:
    """Give `user` the role that the claim says, or take away one that an earlier claim gave. What
    cannot be done (a tenant that is not in the policy, the last admin) is logged, and not done."""
    try:
        with transaction.atomic():
            if mapped is not None:
                _give(user, mapped, actor)
            else:
                _take_away(user, actor)
    except (NotFound, Invalid) as error:
        log.warning("role of claim not given", user=user.get_username(), why=str(error))


def _give(user: Any, mapped: Mapped, actor: Actor) -> None:
    role, tenant = mapped
    if role != "admin":
        not_the_last_admin(user, "role", role)
    change_role(user, role, tenant, actor, REASON, from_sso=True)


def _take_away(user: Any, actor: Actor) -> None:
    member = Membership.objects.select_related("tenant").filter(user=user, from_sso=True).first()
    if member is None:
        return
    not_the_last_admin(user, "role", None)
    member.delete()
    user.is_staff = user.is_superuser = False
    user.save(update_fields=["is_staff", "is_superuser"])
    name = user.get_username()
    record(actor, "user", name, field="role", old=member.role, new=None, reason=REASON)
    if member.tenant is not None:
        old = member.tenant.name
        record(actor, "user", name, field="tenant", old=old, new=None, reason=REASON)
