"""API keys: made, changed, rotated, revoked. The secret is returned once and stored nowhere.

1. A key's id stays through every rotation; the old secret works until its grace ends.
2. Each change bumps the version, so that every gateway takes it in within a second.
3. An audit entry never holds a secret, nor a digest of one.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any

from django.conf import settings
from django.db import transaction
from django.db.models import Q
from django.utils import timezone
from django.utils.crypto import get_random_string

from tenants.core.document import Budget as BudgetPart
from tenants.core.issue import refused, short
from tenants.core.keys import BASE62, ID_ALPHABET, ID_LENGTH, SECRET_LENGTH, digest, key_text
from tenants.core.validation import validate_budgets
from tenants.errors import NotFound
from tenants.models import ApiKey, Application, Budget, KeySecret, Tenant
from tenants.selectors import budget_of
from tenants.services.actors import Actor, require
from tenants.services.audit import record
from tenants.services.ends import grace_of, in_days_or_never
from tenants.services.projection import budget_row
from tenants.services.rows import tenant_row
from tenants.services.state import announce, bump

CHUNK = 500


def create_key(
    tenant: str,
    application: str | None = None,
    name: str = "",
    expires_days: float | None = None,
    *,
    budgets: Sequence[Mapping[str, Any]] = (),
    actor: Actor,
    reason: str = "",
) -> tuple[ApiKey, str]:
    """The key and its secret text, which cannot be read again. `budgets` are as in the policy
    file, and stand beside those of tenant and application.

    Raises:
        NotFound: no such tenant or application in the policy.
        PolicyRefused: a field is wrong, or the tenant's own people have made as many as they may.
        NotAllowed: the actor may not make keys for this tenant.
    """
    require(actor, "keys.edit", tenant)
    _name_fits(name)
    expires_at = in_days_or_never(expires_days)
    own = validate_budgets(list(budgets))
    with transaction.atomic():
        version = bump()
        owner, inside = _owners(tenant, application)
        if actor.tenant is not None:
            _has_room(owner)
        key = ApiKey.objects.create(
            public_id=get_random_string(ID_LENGTH, ID_ALPHABET),
            tenant=owner,
            application=inside,
            name=name,
            created_by=actor.name,
            expires_at=expires_at,
        )
        text = _new_secret(key)
        Budget.objects.bulk_create([Budget(**budget_row(part, key_id=key.pk)) for part in own])
        record(actor, "key", key.public_id, new=_said(key, own), reason=reason)
        announce(version)
    return key, text


def rotate_key(
    public_id: str, grace_hours: float = 0, *, actor: Actor, reason: str = ""
) -> tuple[ApiKey, str]:
    """A new secret for the same key; earlier ones are accepted for `grace_hours` more.

    Raises:
        NotFound: there is no such key.
        PolicyRefused: it is revoked, or the grace is out of range.
    """
    grace = grace_of(grace_hours)
    with transaction.atomic():
        version = bump()
        key = _usable(public_id, actor)
        key.secrets.filter(accepted_until__isnull=True).update(accepted_until=grace)
        key.secrets.filter(accepted_until__lte=timezone.now()).delete()
        text = _new_secret(key)
        said = {"grace_hours": grace_hours}
        record(actor, "key", public_id, field="secret", old="…", new=said, reason=reason)
        announce(version)
    return key, text


def expire_key(
    public_id: str, expires_days: float | None, *, actor: Actor, reason: str = ""
) -> ApiKey:
    """Let the key expire so many days from now, or never. One that has expired works again at
    once; a revoked one stays revoked.

    Raises:
        NotFound: there is no such key.
        PolicyRefused: it is revoked, or the days are out of range.
    """
    expires_at = in_days_or_never(expires_days)
    with transaction.atomic():
        version = bump()
        key = _key(public_id, actor)
        if key.revoked_at is not None:
            raise refused("key", public_id, f"key {public_id} is revoked; make a new one")
        old, key.expires_at = key.expires_at, expires_at
        key.save(update_fields=["expires_at"])
        said = [None if each is None else each.isoformat() for each in (old, expires_at)]
        record(actor, "key", public_id, field="expires_at", old=said[0], new=said[1], reason=reason)
        announce(version)
    return key


def set_key_budgets(
    public_id: str,
    budgets: Sequence[Mapping[str, Any]],
    *,
    actor: Actor,
    reason: str = "",
) -> ApiKey:
    """All budgets of the key, in place of those that it has. One that keeps its name keeps what
    was used of it.

    Raises:
        NotFound: there is no such key.
        PolicyRefused: it is revoked, or a budget is wrong.
    """
    new = validate_budgets(list(budgets))
    with transaction.atomic():
        version = bump()
        key = _key(public_id, actor)
        if key.revoked_at is not None:
            raise refused("key", public_id, f"key {public_id} is revoked; make a new one")
        old = [budget_of(row) for row in key.budgets.all()]
        if old != new:
            key.budgets.all().delete()
            Budget.objects.bulk_create([Budget(**budget_row(part, key_id=key.pk)) for part in new])
            was, now = _told(old), _told(new)
            record(actor, "key", public_id, field="budgets", old=was, new=now, reason=reason)
            announce(version)
    return key


def note_use(used: Mapping[datetime, Collection[str]]) -> None:
    """When keys were used last, by moment: no change of policy, so nobody is told. An earlier
    moment than the one known changes nothing."""
    for at, ids in used.items():
        older = Q(last_used_at__lt=at) | Q(last_used_at=None)
        known = sorted(ids)
        for start in range(0, len(known), CHUNK):
            chunk = known[start : start + CHUNK]
            ApiKey.objects.filter(older, public_id__in=chunk).update(last_used_at=at)


def revoke_key(public_id: str, *, actor: Actor, reason: str = "") -> ApiKey:
    """Refuse the key from now on, for good. Revoking it again changes nothing.

    Raises:
        NotFound: there is no such key.
    """
    if (key := _key(public_id, actor)).revoked_at is not None:
        return key
    with transaction.atomic():
        version = bump()
        key = _key(public_id, actor)  # again, now that nobody else can change it
        if key.revoked_at is None:
            key.revoked_at = timezone.now()
            key.save(update_fields=["revoked_at"])
            when = key.revoked_at.isoformat()
            record(actor, "key", public_id, field="revoked_at", new=when, reason=reason)
            announce(version)
    return key


def _key(public_id: str, actor: Actor) -> ApiKey:
    """Another tenant's key is as unknown to a tenant's admin as one that does not exist."""
    known = set(public_id) <= set(ID_ALPHABET)
    found = ApiKey.objects.select_related("tenant", "application").filter(
        public_id=public_id if known else ""
    )
    if actor.tenant is not None:
        found = found.filter(tenant__name=actor.tenant)
    key = found.first()
    require(actor, "keys.edit", key.tenant.name if key else actor.tenant)
    if key is None:
        raise NotFound(f"there is no key {public_id!r}")
    return key


def _usable(public_id: str, actor: Actor) -> ApiKey:
    key = _key(public_id, actor)
    if key.state != "active":
        raise refused("key", public_id, f"key {public_id} is {key.state}; make a new one")
    return key


def _owners(tenant: str, application: str | None) -> tuple[Tenant, Application | None]:
    owner = tenant_row(tenant)
    if not application:
        return owner, None
    named = {row.name: row for row in owner.applications.filter(in_policy=True)}
    inside = named.get(application)
    if inside is None:
        raise NotFound(f"tenant {tenant!r} has no application {application!r}")
    return owner, inside


def _has_room(tenant: Tenant) -> None:
    """For its own people; an admin may give it more. Expired keys count: they can be let work
    again."""
    most = settings.FAIRLANE_TENANT_KEYS
    used = ApiKey.objects.filter(tenant=tenant, revoked_at=None).count()
    if used >= most:
        message = (
            f"{tenant.name} has {used} keys that are not revoked; its own people may make up to "
            f"{most} (FAIRLANE_TENANT_KEYS). Revoke one, or ask an admin."
        )
        raise refused("tenant", tenant.name, message)


def _new_secret(key: ApiKey) -> str:
    text = key_text(key.public_id, get_random_string(SECRET_LENGTH, BASE62))
    KeySecret.objects.create(key=key, digest=digest(text).hex())
    return text


def _name_fits(name: str) -> None:
    if len(name) > 100 or not (name == "" or name.isprintable()):
        raise refused("name", name, f"name is {short(name)}; it takes up to 100 plain characters")


def _said(key: ApiKey, budgets: Sequence[BudgetPart]) -> dict[str, Any]:
    said: dict[str, Any] = {"tenant": key.tenant.name, "name": key.name}
    if key.application:
        said["application"] = key.application.name
    if key.expires_at:
        said["expires_at"] = key.expires_at.isoformat()
    if budgets:
        said["budgets"] = _told(budgets)
    return said


def _told(budgets: Sequence[BudgetPart]) -> list[dict[str, Any]]:
    return [part.model_dump(exclude_defaults=True) for part in budgets]
