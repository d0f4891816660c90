"""Single objects of the policy: each edit is a new document made from the current one.

An object is named by its kind and name; an application by `tenant/application`. Fields are those
of the policy file. An edit is a merge patch (RFC 7396): what is given replaces, mappings merge,
None takes a value away so that the tier's or the default holds again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from hashlib import sha256
from typing import Any

from tenants.core.diff import LISTS, Kind, content, name_field, named
from tenants.core.document import Document, canonical
from tenants.core.issue import refused
from tenants.core.validation import validate
from tenants.errors import Conflict, NotFound
from tenants.services.actors import Actor, require
from tenants.services.documents import Applied, change

Proposal = Callable[[Document], Document]


def create_object(
    kind: Kind, fields: Mapping[str, Any], *, actor: Actor, reason: str = ""
) -> Applied:
    """Add one object. `fields` holds its name (a pool's `model`; `tenant/name` of an application).

    Raises:
        PolicyRefused: it exists already, or a field is wrong.
    """
    require(actor, "policy.edit")
    return change(creating(kind, fields), actor=actor, reason=reason)


def edit_object(
    kind: Kind,
    name: str,
    fields: Mapping[str, Any],
    *,
    actor: Actor,
    etag: str | None = None,
    reason: str = "",
) -> Applied:
    """Change some fields of one object.

    Raises:
        NotFound: there is no such object.
        Conflict: it is no longer the one that `etag` was made of.
        PolicyRefused: a field is wrong.
    """
    require(actor, "policy.edit")
    return change(editing(kind, name, fields, etag), actor=actor, reason=reason)


def edit_objects(
    kind: Kind,
    edits: Mapping[str, Mapping[str, Any]],
    *,
    actor: Actor,
    expected_revision: int | None = None,
    reason: str = "",
) -> Applied:
    """Change many objects of one kind, each by a merge patch of its own: all or none, as one
    revision.

    Raises:
        NotFound, PolicyRefused: as in `edit_object`.
        Conflict: `expected_revision` is no longer the one in force.
    """
    require(actor, "policy.edit")
    proposal = editing_each(kind, edits)
    return change(proposal, actor=actor, reason=reason, expected_revision=expected_revision)


def delete_object(
    kind: Kind, name: str, *, actor: Actor, etag: str | None = None, reason: str = ""
) -> Applied:
    """Take one object out of the policy; refused while others name it. A tenant's keys and
    members keep their rows and work again once it is back."""
    require(actor, "policy.edit")
    return change(deleting(kind, name, etag), actor=actor, reason=reason)


def creating(kind: Kind, fields: Mapping[str, Any]) -> Proposal:
    key = name_field(kind)
    name = str(fields.get(key, ""))

    def propose(old: Document) -> Document:
        if name in named(old, kind):
            raise refused(key, name, f"{kind} {name!r} exists already")
        data = canonical(old)
        items, own = _place(data, kind, name)
        items.append(_patched({}, {**fields, key: own or fields.get(key)}))
        return validate(data)

    return propose


def editing(kind: Kind, name: str, fields: Mapping[str, Any], etag: str | None = None) -> Proposal:
    def propose(old: Document) -> Document:
        _check_seen(old, kind, name, etag)
        return editing_each(kind, {name: fields})(old)

    return propose


def editing_each(kind: Kind, edits: Mapping[str, Mapping[str, Any]]) -> Proposal:
    """A merge patch of its own on each of them, by name."""

    def propose(old: Document) -> Document:
        data, known = canonical(old), named(old, kind)
        for name, fields in edits.items():
            if name not in known:
                raise NotFound(f"there is no {kind} {name!r}")
            _edit(data, kind, name, fields)
        return validate(data)

    return propose


def deleting(kind: Kind, name: str, etag: str | None = None) -> Proposal:
    def propose(old: Document) -> Document:
        _check_seen(old, kind, name, etag)
        data = canonical(old)
        items, own = _place(data, kind, name)
        del items[_position(items, kind, own)]
        return validate(data)

    return propose


def etag_of(document: Document, kind: Kind, name: str) -> str:
    """Changes with the object's own content (a tenant's applications have their own).

    Raises:
        NotFound: there is no such object.
    """
    found = named(document, kind).get(name)
    if found is None:
        raise NotFound(f"there is no {kind} {name!r}")
    text = json.dumps(content(found), sort_keys=True)
    return sha256(text.encode()).hexdigest()[:16]


def _check_seen(document: Document, kind: Kind, name: str, etag: str | None) -> None:
    current = etag_of(document, kind, name)
    if etag is not None and etag != current:
        raise Conflict(f"{kind} {name!r} was changed by somebody else meanwhile")


def _place(data: dict[str, Any], kind: Kind, name: str) -> tuple[list[dict[str, Any]], str]:
    """The list that the object is in or goes to, and what it is called there."""
    if kind != "application":
        items: list[dict[str, Any]] = data[LISTS[kind]]
        return items, name
    owner, _, own = name.partition("/")
    for tenant in data["tenants"]:
        if tenant["name"] == owner:
            return tenant.setdefault("applications", []), own
    raise NotFound(f"there is no tenant {owner!r}")


def _position(items: list[dict[str, Any]], kind: Kind, own: str) -> int:
    return next(i for i, item in enumerate(items) if item[name_field(kind)] == own)


def _edit(data: dict[str, Any], kind: Kind, name: str, fields: Mapping[str, Any]) -> None:
    items, own = _place(data, kind, name)
    position = _position(items, kind, own)
    key = name_field(kind)
    if fields.get(key, own) not in (own, name):
        raise refused(key, fields[key], f"a {kind} keeps its name: {name!r}")
    given = {field: value for field, value in fields.items() if field != key}
    items[position] = _patched(items[position], given)


def _patched(target: Any, patch: Any) -> Any:
    if not isinstance(patch, Mapping):
        return patch
    merged = dict(target) if isinstance(target, Mapping) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = _patched(merged.get(key), value)
    return merged
