"""One audit entry for each changed field of each changed object."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tenants.core.diff import Change
from tenants.core.text import plain
from tenants.models import AuditEntry, PolicyRevision
from tenants.services.actors import Actor, require
from tenants.services.state import announce, bump


def record(
    actor: Actor,
    kind: str,
    name: str,
    *,
    field: str = "",
    old: Any = None,
    new: Any = None,
    reason: str = "",
) -> AuditEntry:
    """For keys and users: what is beside the policy document. Never give it a secret."""
    entry = _entry(actor, kind, name, field, old, new, reason)
    entry.save()
    return entry


def record_counter(actor: Actor, account: str, old: float, new: float, reason: str) -> None:
    """A budget's counter was set right by hand. Call it first in the transaction that does so:
    it takes the version's lock, and gateways look at their counters when the version moves.

    Raises:
        NotAllowed: the actor may not edit policy.
    """
    require(actor, "policy.edit")
    version = bump()
    record(actor, "budget_counter", account, field="used", old=old, new=new, reason=reason)
    announce(version)


def record_changes(
    actor: Actor, changes: Iterable[Change], reason: str, revision: PolicyRevision
) -> None:
    entries = [
        _entry(actor, c.kind, c.name, c.field, c.old, c.new, reason, revision) for c in changes
    ]
    AuditEntry.objects.bulk_create(entries, batch_size=500)


def _entry(
    actor: Actor,
    kind: str,
    name: str,
    field: str,
    old: Any,
    new: Any,
    reason: str,
    revision: PolicyRevision | None = None,
) -> AuditEntry:
    return AuditEntry(
        actor=actor.name,
        source=actor.source,
        address=actor.address,
        kind=kind,
        name=name,
        field=field,
        old=old,
        new=new,
        reason=plain(reason),
        revision=revision,
    )
