"""What differs between two documents, field by field.

1. Objects are matched by name, so a different order alone is no difference. Lists of plain
   values (aliases, allowed lanes, models) are sets.
2. An object that is new or gone is one change with an empty field and its whole content;
   a tenant's applications are objects of their own, named `tenant/application`.
3. Defaults are compared, not only what is written: leaving a default out changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from tenants.core.document import Document, Part, plain_numbers
from tenants.core.issue import IDENTITY

Kind = Literal["lane", "tier", "pool", "tenant", "application"]
LISTS: dict[Kind, str] = {"lane": "lanes", "tier": "tiers", "pool": "pools", "tenant": "tenants"}


@dataclass(frozen=True, slots=True)
class Change:
    kind: Kind
    name: str
    field: str  # "limits.max_running", "budgets.hourly.cost"; "" for the object itself
    old: Any
    new: Any

    def __str__(self) -> str:
        if self.field:
            return f"{self.kind} {self.name}: {self.field}: {_text(self.old)} → {_text(self.new)}"
        if self.old is None:
            return f"{self.kind} {self.name}: added"
        return f"{self.kind} {self.name}: removed"


def diff(old: Document, new: Document) -> list[Change]:
    changes: list[Change] = []
    for kind in LISTS:
        before, after = named(old, kind), named(new, kind)
        changes += _objects(kind, before, after)
        if kind == "tenant":
            changes += _objects("application", named(old, "application"), named(new, "application"))
    return changes


def named(document: Document, kind: Kind) -> dict[str, Part]:
    """The document's objects of one kind by their names."""
    if kind == "application":
        return {f"{t.name}/{a.name}": a for t in document.tenants for a in t.applications}
    return {getattr(item, name_field(kind)): item for item in getattr(document, LISTS[kind])}


def name_field(kind: Kind) -> Literal["model", "name"]:
    """The field by which objects of a kind are named."""
    return "model" if kind == "pool" else "name"


def identity(item: Mapping[str, Any]) -> str:
    """What names an entry of a list of objects, as plain values, among the others."""
    return str(next(item[key] for key in IDENTITY if key in item))


def content(item: Part) -> dict[str, Any]:
    """One object as plain values without defaults; a tenant without its applications."""
    return plain_numbers(item.model_dump(exclude_defaults=True, exclude={"applications"}))


def whole(item: Part) -> dict[str, Any]:
    """As `content`, with the defaults."""
    return plain_numbers(item.model_dump(exclude={"applications"}))


def _objects(kind: Kind, before: dict[str, Part], after: dict[str, Part]) -> Iterator[Change]:
    for name in [*before, *(name for name in after if name not in before)]:
        old, new = before.get(name), after.get(name)
        if old == new:
            continue
        if old is None or new is None:
            gone, made = (content(item) if item else None for item in (old, new))
            yield Change(kind, name, "", gone, made)
        else:
            yield from _fields(kind, name, "", whole(old), whole(new))


def _fields(kind: Kind, name: str, field: str, old: Any, new: Any) -> Iterator[Change]:
    old, new = _comparable(old, new), _comparable(new, old)
    if old == new:
        return
    if isinstance(old, dict) and isinstance(new, dict):
        for key in [*old, *(key for key in new if key not in old)]:
            inner = f"{field}.{key}" if field else str(key)
            yield from _fields(kind, name, inner, old.get(key), new.get(key))
    else:
        yield Change(kind, name, field, _bare(old), _bare(new))


def _comparable(value: Any, other: Any) -> Any:
    """Lists of objects by name, lists of plain values in one order."""
    if not isinstance(value, list):
        return value
    if any(isinstance(item, dict) for item in [*value, *(other or [])]):
        return {identity(item): item for item in value}
    return sorted(value)


def _bare(value: Any) -> Any:
    """Without what is None: it was never said."""
    if isinstance(value, dict):
        return {key: _bare(item) for key, item in value.items() if item is not None}
    return value


def _text(value: Any) -> str:
    return "unset" if value is None else str(value)
