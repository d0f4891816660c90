"""Reading policy: what is in force, what was, and what it comes to for one tenant."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from datetime import datetime
from functools import lru_cache
from typing import Any

import structlog
from django.contrib.auth import get_user_model
from django.db import connection
from django.db.models import OuterRef, Q, QuerySet, Subquery
from django.utils import timezone

from tenants.core import yaml_text
from tenants.core.compile import KeyGrant, compile_snapshot
from tenants.core.diff import named
from tenants.core.document import EMPTY, Budget, Document, Tenant, canonical, stored
from tenants.core.effective import Origin, origins, tier_of
from tenants.core.keys import ID_ALPHABET
from tenants.core.snapshot import PolicySnapshot
from tenants.core.stale import refused_today
from tenants.errors import NotFound
from tenants.models import (
    AccessToken,
    ApiKey,
    KeySecret,
    Membership,
    PolicyRevision,
    PolicyState,
)
from tenants.models import Budget as BudgetRow

STEADY_READS = 5

log = structlog.get_logger("fairlane.policy")


def current_version() -> int:
    """Grows with every change of policy or keys; one small indexed query, made to be polled, and
    written out: building it would cost ten times what it does."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT version FROM tenants_policystate WHERE id = 1")
        found = cursor.fetchone()
    return int(found[0]) if found else 0


def current_revision() -> int:
    found = PolicyState.objects.filter(id=1).values_list("revision", flat=True).first()
    return found or 0


def current_document() -> Document:
    return revision_document(current_revision())


def revision_document(number: int) -> Document:
    """Revision 0 is the empty document.

    Raises:
        NotFound: there is no such revision.
    """
    if number == 0:
        return EMPTY
    return _document(_packed(number))


def revision_text(number: int) -> str:
    """The document as YAML that can be applied.

    Raises:
        NotFound: there is no such revision.
    """
    return yaml_text.dump(canonical(EMPTY)) if number == 0 else _text(_packed(number))


def _packed(number: int) -> bytes:
    packed = PolicyRevision.objects.filter(number=number).values_list("packed", flat=True).first()
    if packed is None:
        raise NotFound(f"there is no revision {number}")
    return bytes(packed)


@lru_cache(maxsize=4)
def _text(packed: bytes) -> str:
    return yaml_text.dump(canonical(_document(packed)))


@lru_cache(maxsize=8)
def _document(packed: bytes) -> Document:
    """Documents are frozen, so that pages can share one; a large one takes a while to read. Each
    process says once what an older version took and this one would refuse."""
    document = stored(PolicyRevision.unpack(packed))
    for issue in refused_today(document):
        log.warning("a stored policy has what is refused today", issue=str(issue))
    return document


def history(limit: int = 50) -> list[PolicyRevision]:
    """Newest first, without the documents."""
    return list(PolicyRevision.objects.defer("packed")[:limit])


def load_snapshot(at: datetime | None = None) -> PolicySnapshot:
    """Everything a gateway needs, as of one version. Keys that have expired by `at` are left out.

    Reads again when a change came between two of its queries, so that it is never half an edit.
    """
    at = at or timezone.now()
    for _ in range(STEADY_READS):
        state = PolicyState.objects.filter(id=1).first() or PolicyState()
        document = revision_document(state.revision)
        keys = key_grants(at)
        if current_version() == state.version:
            break
    return compile_snapshot(document, keys, state.revision, state.version)


def past_snapshot(revision: int) -> PolicySnapshot:
    """What was in force as of a revision, with every key of its tenants, those too that are
    revoked or have expired since: whose budgets a request of then counts against.

    Raises:
        NotFound: there is no such revision.
    """
    budgets = key_budgets()
    owned = ApiKey.objects.filter(public_id__in=list(budgets))
    keys = [
        KeyGrant(name, tenant, application or "", name.encode(), None, tuple(budgets[name]))
        for name, tenant, application in owned.values_list(
            "public_id", "tenant__name", "application__name"
        )
    ]
    return compile_snapshot(revision_document(revision), keys, revision, 0)


def key_grants(at: datetime) -> list[KeyGrant]:
    """Every secret that is accepted at `at`, with the earlier of its two ends."""
    budgets = key_budgets()
    secrets = KeySecret.objects.filter(key__revoked_at__isnull=True).values_list(
        "digest",
        "accepted_until",
        "key__public_id",
        "key__expires_at",
        "key__tenant__name",
        "key__application__name",
    )
    grants = []
    for digest, until, public_id, expires_at, tenant, application in secrets.iterator(2000):
        ends = min((end for end in (until, expires_at) if end is not None), default=None)
        if ends is None or ends > at:
            own = tuple(budgets.get(public_id, ()))
            secret = bytes.fromhex(digest)
            grants.append(KeyGrant(public_id, tenant, application or "", secret, ends, own))
    return grants


def key_budgets(tenant: str | None = None) -> dict[str, list[Budget]]:
    """Of each key that has any, by its id; of all keys, or of one tenant's that are not revoked."""
    found: dict[str, list[Budget]] = defaultdict(list)
    rows = BudgetRow.objects.filter(key__isnull=False).select_related("key")
    if tenant is not None:
        rows = rows.filter(key__tenant__name=tenant, key__revoked_at=None)
    for row in rows:
        if row.key is not None:
            found[row.key.public_id].append(budget_of(row))
    return found


def budget_of(row: BudgetRow) -> Budget:
    fields: dict[str, Any] = {
        "name": row.name,
        "kind": row.kind,
        "cost": row.cost,
        "refill_per_second": row.refill_per_second,
        "period": row.period or None,
        "on_exhausted": row.on_exhausted,
    }
    return Budget.model_validate(fields)


def keys(tenant: str | None = None) -> QuerySet[ApiKey]:
    """All keys, or a tenant's, newest first; `masked` is what may be shown of one, `old_until`
    how long a secret from before the last rotation is still accepted."""
    old = KeySecret.objects.filter(key=OuterRef("pk"), accepted_until__gt=timezone.now())
    ends = old.order_by("-accepted_until").values("accepted_until")[:1]
    found = ApiKey.objects.select_related("tenant", "application").annotate(
        old_until=Subquery(ends)
    )
    return found.filter(tenant__name=tenant) if tenant is not None else found


def keys_by_id(ids: Collection[str]) -> QuerySet[ApiKey]:
    """As `keys`. What no id can be (PostgreSQL takes no NUL) is as unknown as any other."""
    possible = [each for each in ids if set(each) <= set(ID_ALPHABET)]
    return keys().filter(public_id__in=possible)


def effective_policy(tenant: str) -> dict[str, tuple[Any, Origin]]:
    """Each value in force for a tenant by field, and whether the tenant, its tier or the default
    says so.

    Raises:
        NotFound: the tenant is not in the policy.
    """
    document = current_document()
    found = named(document, "tenant").get(tenant)
    if not isinstance(found, Tenant):
        raise NotFound(f"there is no tenant {tenant!r}")
    return origins(found, tier_of(found, document))


def members(tenant: str) -> QuerySet[Membership]:
    """The people of a tenant, by name."""
    found = Membership.objects.select_related("user").filter(tenant__name=tenant)
    return found.order_by("user__username")


def role_of(user: Any) -> tuple[str, str | None]:
    """Of an account, or of what calls with a service token: the role, and of a tenant role the
    tenant. A superuser counts as admin; an empty role may nothing."""
    if user.is_superuser:
        return "admin", None
    member: Membership | None = getattr(user, "membership", None)
    if member is None:
        return "", None
    return member.role, member.tenant.name if member.tenant else None


def people(query: str = "", role: str = "", tenant: str = "", state: str = "") -> QuerySet[Any]:
    """Accounts with role and tenant, by name. `role` may be `none`; `state` is `enabled` or
    `disabled`."""
    found = get_user_model()._default_manager.select_related("membership__tenant")
    if query:
        found = found.filter(Q(username__icontains=query) | Q(email__icontains=query))
    if role == "none":
        found = found.filter(membership=None, is_superuser=False)
    elif role:
        found = found.filter(membership__role=role)
    if tenant:
        found = found.filter(membership__tenant__name=tenant)
    if state in ("enabled", "disabled"):
        found = found.filter(is_active=state == "enabled")
    return found.order_by("username")


def service_tokens() -> QuerySet[AccessToken]:
    """All service tokens, newest first; `masked` is what may be shown of one."""
    return AccessToken.objects.filter(user=None).select_related("tenant")


def token_of(user: Any) -> AccessToken | None:
    """A person's own token, where there is one that was not revoked."""
    return AccessToken.objects.filter(user_id=user.pk, revoked_at=None).first()
