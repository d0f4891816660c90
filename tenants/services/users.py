"""People: an account, its one role, and how it signs in.

1. There is always an admin who can sign in: the last one keeps role and account.
2. Nobody disables their own account.
3. An audit entry never holds a password, a token or a code.
"""

from __future__ import annotations

import secrets
from typing import Any

from django.contrib.auth import get_user_model
from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError
from django.db import transaction
from django.db.models import Q
from django.utils import timezone

from tenants.core.issue import refused, short
from tenants.core.permissions import role_fits
from tenants.models import Membership
from tenants.services.actors import Actor, require
from tenants.services.audit import record
from tenants.services.lockouts import forget_wrong_passwords
from tenants.services.rows import tenant_row, user_row
from tenants.services.state import hold
from tenants.services.tokens import issue_for

PASSWORD_BYTES = 15
UNTOLD = "…"  # stands in the audit for a secret


def create_user(
    username: str,
    role: str,
    tenant: str | None = None,
    password: str | None = None,
    *,
    one_time: bool = False,
    actor: Actor,
    reason: str = "",
) -> tuple[Any, str, str]:
    """The user, the password (made up where none is given) and the API token, told once.
    A `one_time` password must be changed at the first sign-in.

    Raises:
        PolicyRefused: the name is taken or malformed, the password too weak, or role and tenant
            do not fit: tenant roles need a tenant, the others have none.
        NotFound: there is no such tenant.
        NotAllowed: the actor may not manage users.
    """
    require(actor, "users.edit")
    role_fits(role, tenant)
    given = password or _made_up()
    with transaction.atomic():
        hold()  # of two who make the same the second one is told that the name is taken
        user = _account(username, given)
        _give_role(user, role, tenant, must_change_password=one_time)
        _, token = issue_for(user, actor)
        said = {"role": role, **({"tenant": tenant} if tenant else {})}
        record(actor, "user", username, new=said, reason=reason)
    return user, given, token


def set_role(
    username: str, role: str, tenant: str | None = None, *, actor: Actor, reason: str = ""
) -> Membership:
    """Give an existing user another role; one audit entry for each field that changes.

    Raises:
        PolicyRefused, NotFound, NotAllowed: as in `create_user`; PolicyRefused also for the last
            admin.
    """
    require(actor, "users.edit")
    role_fits(role, tenant)
    with transaction.atomic():
        user = user_row(username)
        if role != "admin":
            not_the_last_admin(user, "role", role)
        return change_role(user, role, tenant, actor, reason)


def change_role(
    user: Any, role: str, tenant: str | None, actor: Actor, reason: str, *, from_sso: bool = False
) -> Membership:
    """Inside a transaction of somebody who has checked that it may be done."""
    before, name = _role_of(user), user.get_username()
    member = _give_role(user, role, tenant, from_sso=from_sso)
    for field, old, new in zip(("role", "tenant"), before, (role, tenant), strict=True):
        if old != new:
            record(actor, "user", name, field=field, old=old, new=new, reason=reason)
    return member


def set_enabled(username: str, enabled: bool, *, actor: Actor, reason: str = "") -> Any:
    """A disabled user's sessions end for good and the token is refused at once; enabling brings the
    token back. The same again changes nothing. Returns the user.

    Raises:
        PolicyRefused: it is the actor's own account, or the last admin's.
        NotFound, NotAllowed: as in `create_user`.
    """
    require(actor, "users.edit")
    with transaction.atomic():
        user = user_row(username)
        if user.is_active == enabled:
            return user
        if not enabled:
            if _is_self(actor, user):
                raise refused("enabled", enabled, "nobody disables their own account")
            not_the_last_admin(user, "enabled", enabled)
            if user.is_superuser:
                membership_row(user)  # it is there that the end of sessions is noted
            Membership.objects.filter(user=user).update(sessions_since=timezone.now())
        user.is_active = enabled
        user.save(update_fields=["is_active"])
        record(
            actor, "user", username, field="enabled", old=not enabled, new=enabled, reason=reason
        )
    return user


def reset_password(username: str, *, actor: Actor, reason: str = "") -> str:
    """A made-up password, told once, that must be changed at the next sign-in. Ends the user's
    sessions, and a pause after wrong passwords.

    Raises:
        NotFound, NotAllowed: as in `create_user`.
    """
    require(actor, "users.edit")
    password = _made_up()
    with transaction.atomic():
        user = user_row(username)
        _store_password(user, password, one_time=True)
        record(actor, "user", username, field="password", old=UNTOLD, new="one-time", reason=reason)
        forget_wrong_passwords(user, actor, reason)
    return password


def change_password(user: Any, old: str, new: str, *, actor: Actor) -> None:
    """One's own. The caller keeps the present session (`update_session_auth_hash`); others end.

    Raises:
        PolicyRefused: `old` is not the password, `new` is too weak or the same.
    """
    if not user.check_password(old):
        raise refused("old", UNTOLD, "this is not your present password")
    if old == new:
        raise refused("new", UNTOLD, "choose a password that differs from the present one")
    try:
        validate_password(new, user)
    except ValidationError as error:
        raise refused("new", UNTOLD, " ".join(error.messages)) from None
    with transaction.atomic():
        _store_password(user, new, one_time=False)
        record(actor, "user", user.get_username(), field="password", old=UNTOLD, new=UNTOLD)


def end_sessions(username: str, *, actor: Actor, reason: str = "") -> None:
    """Sign somebody out everywhere. People may do this for themselves. Tokens go on working.

    Raises:
        NotFound, NotAllowed: as in `create_user`.
    """
    if actor.user is None or actor.user.get_username() != username:
        require(actor, "users.edit")
    with transaction.atomic():
        member = membership_row(user_row(username))
        before, member.sessions_since = member.sessions_since, timezone.now()
        member.save(update_fields=["sessions_since"])
        record(
            actor,
            "user",
            username,
            field="sessions_since",
            old=before.isoformat() if before else None,
            new=member.sessions_since.isoformat(),
            reason=reason,
        )


def membership_row(user: Any) -> Membership:
    """A superuser made by `createsuperuser` has none until it is needed.

    Raises:
        PolicyRefused: the account has no role.
    """
    member = Membership.objects.select_for_update(of=("self",)).filter(user=user).first()
    if member is not None:
        return member
    if user.is_superuser:
        return Membership.objects.create(user=user, role="admin")
    name = user.get_username()
    raise refused("role", None, f"user {short(name)} has no role yet; give it one first")


def _role_of(user: Any) -> tuple[str | None, str | None]:
    member = Membership.objects.select_related("tenant").filter(user=user).first()
    if member is None:
        return None, None
    return member.role, member.tenant.name if member.tenant else None


def not_the_last_admin(user: Any, field: str, value: object) -> None:
    """The rows stay locked to the commit, so that two admins cannot remove one another."""
    everybody = get_user_model()._default_manager
    list(everybody.select_for_update().filter(is_superuser=True).order_by("pk").values_list("pk"))
    members = Membership.objects.select_for_update(of=("self",)).filter(role="admin")
    list(members.order_by("pk").values_list("pk"))
    admins = everybody.filter(Q(is_superuser=True) | Q(membership__role="admin"), is_active=True)
    if list(admins.values_list("pk", flat=True)) == [user.pk]:
        name = short(user.get_username())
        message = f"user {name} is the last admin who can sign in; make another one first"
        raise refused(field, value, message)


def _is_self(actor: Actor, user: Any) -> bool:
    return actor.user is not None and actor.user.pk == user.pk


def _made_up() -> str:
    return secrets.token_urlsafe(PASSWORD_BYTES)


def _store_password(user: Any, password: str, one_time: bool) -> None:
    user.set_password(password)
    user.save(update_fields=["password"])
    Membership.objects.filter(user=user).update(must_change_password=one_time)


def _account(username: str, password: str) -> Any:
    model = get_user_model()
    user = model(username=username)
    try:
        validate_password(password, user)
        user.set_password(password)
        user.full_clean()
    except ValidationError as error:
        shown = "; ".join(error.messages)
        raise refused("username", username, f"user {short(username)}: {shown}") from None
    user.save()
    return user


def _give_role(user: Any, role: str, tenant: str | None, **said: bool) -> Membership:
    owner = tenant_row(tenant) if tenant else None
    user.is_staff = user.is_superuser = role == "admin"  # what lets an admin into /admin/
    user.save(update_fields=["is_staff", "is_superuser"])
    member, _ = Membership.objects.update_or_create(
        user=user, defaults={"role": role, "tenant": owner, **said}
    )
    return member
