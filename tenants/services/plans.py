"""Between preview and apply: what an edit would do, and that it does just that.

1. An author edits what they saw, revision `base`. What others changed since is merged with it,
   field by field; a field that both changed stays as it is in force unless the author chose.
2. A preview is sealed: the seal says what would change, from which value to which. Applying needs
   the seal, so what others did between preview and apply is seen before anything is written.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from hashlib import sha256

from tenants.core.diff import Change, diff
from tenants.core.document import Document
from tenants.core.merge import Beside, Side, merge
from tenants.core.validation import validate
from tenants.core.warnings import PolicyWarning
from tenants.errors import Conflict
from tenants.preview import warnings_of
from tenants.selectors import current_revision, revision_document
from tenants.services.actors import Actor, require
from tenants.services.documents import Applied, change, sound
from tenants.services.objects import Proposal


class Unseen(Conflict):
    """Applying would do something else than the preview said."""


@dataclass(frozen=True, slots=True)
class Edit:
    """`propose` makes the author's document of the one they saw; `keep` are their choices where
    others changed the same field (`Beside.key`)."""

    propose: Proposal
    base: int
    keep: Mapping[str, Side]


@dataclass(frozen=True, slots=True)
class Plan:
    revision: int  # in force, which it was compared with
    old: Document
    new: Document
    changes: list[Change]
    beside: list[Beside]  # fields of the objects that others changed since `base`, too
    warnings: list[PolicyWarning]
    seal: str


def plan(edit: Edit) -> Plan:
    """What applying the edit would do now.

    Raises:
        PolicyRefused: the author's document is wrong, or is once it is merged.
        NotFound: there is no revision `base`, or it has no such object.
    """
    revision = current_revision()
    old = revision_document(revision)
    new, beside = _merged(edit, old, edit.base == revision)
    new = sound(new)
    changes = diff(old, new)
    warnings = warnings_of(old, new) if changes else []
    return Plan(revision, old, new, changes, beside, warnings, seal_of(changes))


def apply_plan(edit: Edit, seal: str, *, actor: Actor, reason: str) -> Applied:
    """Do what the preview with this seal said, as one revision.

    Raises:
        Unseen: it would do something else by now.
        PolicyRefused, NotFound: as `plan`.
    """
    require(actor, "policy.edit")

    def propose(old: Document) -> Document:
        new, _ = _merged(edit, old)
        if seal_of(diff(old, new)) != seal:
            raise Unseen("the policy was changed by somebody else meanwhile")
        return new

    return change(propose, actor=actor, reason=reason)


def seal_of(changes: Sequence[Change]) -> str:
    text = json.dumps([asdict(each) for each in changes], sort_keys=True)
    return sha256(text.encode()).hexdigest()[:32]


def undo(number: int) -> tuple[Proposal, int]:
    """What takes back the change of one revision alone, and the base to merge it from.

    Raises:
        NotFound: there is no such revision.
    """
    before = revision_document(number - 1)
    return (lambda _seen: before), number


def _merged(edit: Edit, old: Document, unchanged: bool = False) -> tuple[Document, list[Beside]]:
    base = old if unchanged else revision_document(edit.base)
    yours = edit.propose(base)
    if base == old:
        return yours, []
    merged = merge(base, old, yours, edit.keep)
    return validate(merged.data), merged.beside
