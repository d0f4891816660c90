"""People: an account, its one role, and a token for the admin API."""

from __future__ import annotations

import secrets
from typing import Any

from django.contrib.auth import get_user_model
from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError
from django.db import transaction
from rest_framework.authtoken.models import Token

from tenants.core.issue import Invalid, Issue, short
from tenants.core.permissions import ROLES, TENANT_ROLES
from tenants.core.text import plain
from tenants.errors import NotFound
from tenants.models import Membership
from tenants.services.actors import Actor, require
from tenants.services.audit import record
from tenants.services.rows import tenant_row

PASSWORD_BYTES = 15


def create_user(
    username: str,
    role: str,
    tenant: str | None = None,
    password: str | None = None,
    *,
    actor: Actor,
    reason: str = "",
) -> tuple[Any, str, str]:
    """The user, the password (made up where none is given) and the API token, told once.

    Raises:
        PolicyRefused: the name is taken or malformed, the password too weak, or role and tenant
            do not fit: tenant roles need a tenant, the others have none.
        NotFound: there is no such tenant.
        NotAllowed: the actor may not manage users.
    """
    require(actor, "users.edit")
    _role_fits(role, tenant)
    given = password or secrets.token_urlsafe(PASSWORD_BYTES)
    with transaction.atomic():
        user = _account(username, given)
        _give_role(user, role, tenant)
        token = Token.objects.create(user=user)
        said = {"role": role, **({"tenant": tenant} if tenant else {})}
        record(actor, "user", username, new=said, reason=reason)
    return user, given, token.key


def set_role(
    username: str, role: str, tenant: str | None = None, *, actor: Actor, reason: str = ""
) -> Membership:
    """Give an existing user another role; one audit entry for each field that changes.

    Raises:
        PolicyRefused, NotFound, NotAllowed: as in `create_user`.
    """
    require(actor, "users.edit")
    _role_fits(role, tenant)
    with transaction.atomic():
        user = get_user_model()._default_manager.filter(username=plain(username)).first()
        if user is None or user.get_username() != username:
            raise NotFound(f"there is no user {username!r}")
        before = _role_of(user)
        member = _give_role(user, role, tenant)
        for field, old, new in zip(("role", "tenant"), before, (role, tenant), strict=True):
            if old != new:
                record(actor, "user", username, field=field, old=old, new=new, reason=reason)
    return member


def _role_of(user: Any) -> tuple[str | None, str | None]:
    member = Membership.objects.select_related("tenant").filter(user=user).first()
    if member is None:
        return None, None
    return member.role, member.tenant.name if member.tenant else None


def _role_fits(role: str, tenant: str | None) -> None:
    if role not in ROLES:
        allowed = ", ".join(ROLES)
        raise _refused("role", role, f"role is {short(role)}; it takes one of: {allowed}")
    if role in TENANT_ROLES and not tenant:
        raise _refused("tenant", tenant, f"role {role} needs a tenant")
    if role not in TENANT_ROLES and tenant:
        raise _refused("tenant", tenant, f"role {role} is for all tenants and takes none")


def _account(username: str, password: str) -> Any:
    model = get_user_model()
    user = model(username=username)
    try:
        validate_password(password, user)
        user.set_password(password)
        user.full_clean()
    except ValidationError as error:
        shown = "; ".join(error.messages)
        raise _refused("username", username, f"user {short(username)}: {shown}") from None
    user.save()
    return user


def _give_role(user: Any, role: str, tenant: str | None) -> Membership:
    owner = tenant_row(tenant) if tenant else None
    user.is_staff = user.is_superuser = role == "admin"  # what lets an admin into /admin/
    user.save(update_fields=["is_staff", "is_superuser"])
    member, _ = Membership.objects.update_or_create(
        user=user, defaults={"role": role, "tenant": owner}
    )
    return member


def _refused(field: str, value: object, message: str) -> Invalid:
    return Invalid([Issue(field, None, short(value), message, (field,))])
