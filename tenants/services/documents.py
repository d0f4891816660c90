"""Whole documents: apply, roll back, and the one way by which any edit becomes a revision.

1. Every edit is "new document from old". It is validated whole before anything is written.
2. Rows, revision, audit entries and the version are written in one transaction, or not at all.
3. A document that says what is already in force makes no revision.
4. When somebody else was first, the edit is computed anew on what they left, or refused where
   the caller said which revision it had seen.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from django.db import transaction

from tenants.core import yaml_text
from tenants.core.diff import Change, diff
from tenants.core.document import Document, canonical
from tenants.core.stale import refused_today
from tenants.core.text import plain
from tenants.core.validation import validate
from tenants.core.warnings import PolicyWarning
from tenants.errors import Conflict, PolicyRefused
from tenants.models import PolicyRevision, PolicyState
from tenants.preview import warnings_of
from tenants.selectors import revision_document
from tenants.services.actors import Actor, require
from tenants.services.audit import record_changes
from tenants.services.projection import project
from tenants.services.state import announce, swap

ATTEMPTS = 20


@dataclass(frozen=True, slots=True)
class Applied:
    """`created` is False where nothing differed, or for a dry run."""

    revision: int  # in force now
    changes: list[Change]
    created: bool
    warnings: list[PolicyWarning] = field(default_factory=list)  # as things were before it


def read_document(data: Mapping[str, Any] | str) -> Document:
    """Raises PolicyRefused with every issue, with lines where `data` is text."""
    if isinstance(data, str):
        text = yaml_text.parse(data)
        return validate(text.data, text.line)
    yaml_text.check_size(data)
    return validate(data)


def apply_document(
    data: Mapping[str, Any] | str,
    *,
    actor: Actor,
    reason: str = "",
    expected_revision: int | None = None,
    dry_run: bool = False,
) -> Applied:
    """Put a whole policy in force: YAML or JSON text, or plain values.

    Raises:
        PolicyRefused: the document is wrong.
        Conflict: `expected_revision` is no longer the one in force.
        NotAllowed: the actor may not edit policy.
    """
    require(actor, "policy.view" if dry_run else "policy.edit")
    document = read_document(data)
    return change(
        lambda _old: document,
        actor=actor,
        reason=reason,
        expected_revision=expected_revision,
        dry_run=dry_run,
    )


def rollback(
    number: int, *, actor: Actor, reason: str = "", expected_revision: int | None = None
) -> Applied:
    """Put an earlier revision's document in force again, as a new revision.

    Raises:
        NotFound: there is no such revision.
        PolicyRefused: it was stored by an older version, and has what is refused today.
    """
    require(actor, "policy.edit")
    document = revision_document(number)
    return change(
        lambda _old: document,
        actor=actor,
        reason=reason or f"Roll back to revision {number}",
        expected_revision=expected_revision,
    )


def sound(document: Document) -> Document:
    """A revision that an older version stored may have what is refused today.

    Raises:
        PolicyRefused
    """
    if stale := refused_today(document):
        raise PolicyRefused(stale)
    return document


def change(
    propose: Callable[[Document], Document],
    *,
    actor: Actor,
    reason: str = "",
    expected_revision: int | None = None,
    dry_run: bool = False,
) -> Applied:
    """Make the revision that `propose` makes of the current document."""
    for _ in range(ATTEMPTS):
        seen = PolicyState.read()
        if expected_revision not in (None, seen.revision):
            raise Conflict(f"revision {seen.revision} is in force, not {expected_revision}")
        old = revision_document(seen.revision)
        new = sound(propose(old))
        changes = diff(old, new)
        warnings = warnings_of(old, new) if changes else []
        if dry_run or not changes:
            return Applied(seen.revision, changes, created=False, warnings=warnings)
        number = _write(seen, new, changes, actor, reason)
        if number is not None:
            return Applied(number, changes, created=True, warnings=warnings)
    raise Conflict("the policy is being changed by others all the time; try again")


def _write(
    seen: PolicyState, document: Document, changes: list[Change], actor: Actor, reason: str
) -> int | None:
    """The new revision's number, or None when somebody else was first."""
    number = seen.revision + 1
    with transaction.atomic():
        if not swap(seen, number):
            return None
        revision = PolicyRevision.objects.create(
            number=number,
            parent=PolicyRevision.objects.filter(number=seen.revision).first(),
            author=actor.name,
            source=actor.source,
            reason=plain(reason),
            changes=len(changes),
            packed=PolicyRevision.pack(canonical(document)),
        )
        project(document)
        record_changes(actor, changes, reason, revision)
        announce(seen.version + 1)
    return number
