"""Tokens for the admin API: a person's own, and those of services.

1. The text is returned once and stored nowhere; an audit entry never holds it.
2. A person has one token at a time: a new one ends the one before.
3. Every token ends. A service token's role and tenant never change: make another one.
4. Of two who make the same at once the second one waits and finds the first one's (`hold`).
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any

from django.db import transaction
from django.utils import timezone
from django.utils.crypto import get_random_string

from tenants.core.issue import refused, short
from tenants.core.keys import BASE62, ID_ALPHABET, ID_LENGTH, SECRET_LENGTH, digest
from tenants.core.permissions import role_fits
from tenants.core.tokens import token_text
from tenants.errors import NotFound
from tenants.models import AccessToken
from tenants.services.actors import Actor, require
from tenants.services.audit import record
from tenants.services.ends import DEFAULT_DAYS, in_days
from tenants.services.rows import tenant_row, user_row
from tenants.services.state import hold

NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")


def create_service_token(
    name: str,
    role: str,
    tenant: str | None = None,
    expires_days: float = DEFAULT_DAYS,
    *,
    actor: Actor,
    reason: str = "",
) -> tuple[AccessToken, str]:
    """The token and its text, which cannot be read again. `name` stands in the audit as
    `token:<name>` for what the service does, so it is given once for good.

    Raises:
        PolicyRefused: name, role, tenant or days are wrong, or the name was used before.
        NotFound: there is no such tenant.
        NotAllowed: the actor may not manage users.
    """
    require(actor, "users.edit")
    role_fits(role, tenant)
    if not NAME.fullmatch(name):
        takes = "it takes 1 to 63 of a-z, 0-9 and -, not - at an end"
        raise refused("name", name, f"name is {short(name)}; {takes}")
    until = in_days(expires_days)
    with transaction.atomic():
        hold()
        if AccessToken.objects.filter(name=name, user=None).exists():
            raise refused("name", name, f"name is {short(name)}; a token had it before")
        owner = tenant_row(tenant) if tenant else None
        token, text = _issue(actor, until, name=name, role=role, tenant=owner)
        said = {"role": role, **({"tenant": tenant} if tenant else {}), "expires_at": until}
        record(actor, "token", name, new=_json(said), reason=reason)
    return token, text


def renew_token(
    username: str, expires_days: float = DEFAULT_DAYS, *, actor: Actor, reason: str = ""
) -> tuple[AccessToken, str]:
    """A person's new token, told once; the one before is refused from now on. People may do this
    for themselves, who manages users for all.

    Raises:
        PolicyRefused: the days are wrong.
        NotFound, NotAllowed: as in `create_service_token`.
    """
    _own_or_manager(actor, username)
    until = in_days(expires_days)
    with transaction.atomic():
        hold()
        user = user_row(username)
        before = _revoke_of(user)
        token, text = issue_for(user, actor, until)
        old = before.expires_at if before else None
        said = _json({"expires_at": old}) if old else None
        new = _json({"expires_at": until})
        record(actor, "user", username, field="token", old=said, new=new, reason=reason)
    return token, text


def revoke_own_token(username: str, *, actor: Actor, reason: str = "") -> AccessToken | None:
    """End a person's token; None where there was none.

    Raises:
        NotFound, NotAllowed: as in `renew_token`.
    """
    _own_or_manager(actor, username)
    with transaction.atomic():
        before = _revoke_of(user_row(username))
        if before is not None:
            said = _json({"expires_at": before.expires_at})
            record(actor, "user", username, field="token", old=said, reason=reason)
    return before


def revoke_token(public_id: str, *, actor: Actor, reason: str = "") -> AccessToken:
    """End a service token for good. Revoking it again changes nothing.

    Raises:
        NotFound: there is no such service token.
        NotAllowed: the actor may not manage users.
    """
    require(actor, "users.edit")
    known = set(public_id) <= set(ID_ALPHABET)
    with transaction.atomic():
        found = AccessToken.objects.select_for_update().filter(
            user=None, public_id=public_id if known else ""
        )
        token = found.first()
        if token is None:
            raise NotFound(f"there is no token {public_id!r}")
        if token.revoked_at is None:
            token.revoked_at = timezone.now()
            token.save(update_fields=["revoked_at"])
            when = token.revoked_at.isoformat()
            record(actor, "token", token.name, field="revoked_at", new=when, reason=reason)
    return token


def issue_for(user: Any, actor: Actor, until: datetime | None = None) -> tuple[AccessToken, str]:
    """A token of a person who has none. The caller writes the audit entry."""
    return _issue(actor, until or in_days(DEFAULT_DAYS), user=user)


def _own_or_manager(actor: Actor, username: str) -> None:
    if actor.user is None or actor.user.get_username() != username:
        require(actor, "users.edit")


def _revoke_of(user: Any) -> AccessToken | None:
    token = AccessToken.objects.select_for_update().filter(user=user, revoked_at=None).first()
    if token is not None:
        token.revoked_at = timezone.now()
        token.save(update_fields=["revoked_at"])
    return token


def _issue(actor: Actor, until: datetime, **owner: Any) -> tuple[AccessToken, str]:
    public_id = get_random_string(ID_LENGTH, ID_ALPHABET)
    text = token_text(public_id, get_random_string(SECRET_LENGTH, BASE62))
    token = AccessToken.objects.create(
        public_id=public_id,
        digest=digest(text).hex(),
        created_by=actor.name,
        expires_at=until,
        **owner,
    )
    return token, text


def _json(said: dict[str, Any]) -> dict[str, Any]:
    return {k: v.isoformat() if isinstance(v, datetime) else v for k, v in said.items()}
