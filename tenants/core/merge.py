"""Two people changed one policy: put both changes together, field by field.

1. What only one of them changed is as that one left it; what neither changed stays.
2. What both changed to different values is a clash. It stays as it is in force unless the author
   chooses their own value, so that nothing is overwritten unseen.
3. Objects, applications, budgets and endpoints are matched by name; lists of plain values are one
   value, in any order. To remove what the other changed is a clash of the whole object.

Undoing an earlier revision is the same: `base` is that revision, `yours` the one before it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from tenants.core.diff import LISTS, Kind, identity
from tenants.core.document import Document, plain_numbers

Side = Literal["theirs", "yours"]
Outcome = Literal["theirs", "yours", "same", "clash"]
Path = tuple[str, ...]
KINDS: Mapping[str, Kind] = {name: kind for kind, name in LISTS.items()}


@dataclass(frozen=True, slots=True)
class Beside:
    """One field as the author saw it, as it is in force, and as the author wants it; None is
    unset, or an object that is not there. `kept` is whose value holds."""

    kind: Kind
    name: str
    field: str
    base: Any
    theirs: Any
    yours: Any
    outcome: Outcome
    kept: Side

    @property
    def key(self) -> str:
        """Names the choice in a form."""
        return key_of(self.kind, self.name, self.field)


@dataclass(frozen=True, slots=True)
class Merged:
    """`data` is for `validate`. `beside` has the fields of the objects that both changed."""

    data: dict[str, Any]
    beside: list[Beside]


def key_of(kind: Kind, name: str, field: str) -> str:
    return f"{kind} {name} {field}".rstrip()


class Keyed(dict[str, Any]):
    """A list of objects, by what identifies each."""


def merge(base: Document, theirs: Document, yours: Document, keep: Mapping[str, Side]) -> Merged:
    """`theirs` with what `yours` changed since `base`; `keep` has the choices, by `Beside.key`."""
    run = _Merging(keep)
    trees = (_tree(plain_numbers(each.model_dump())) for each in (base, theirs, yours))
    data = _plain(run.node((), *trees))
    shared = {(row.kind, row.name) for row in run.rows if row.outcome != "yours"}
    return Merged(data, [row for row in run.rows if (row.kind, row.name) in shared])


class _Merging:
    def __init__(self, keep: Mapping[str, Side]) -> None:
        self.keep = keep
        self.rows: list[Beside] = []

    def node(self, path: Path, base: Any, theirs: Any, yours: Any) -> Any:
        if _same(theirs, base) and _same(yours, base):
            return theirs
        if _is_object(path) and _same(yours, base):
            return theirs
        if _is_object(path) and _same(theirs, base):
            return yours
        if isinstance(theirs, dict) and isinstance(yours, dict):
            return self._inside(path, base if isinstance(base, dict) else {}, theirs, yours)
        return self._decide(path, base, theirs, yours)

    def _inside(
        self, path: Path, base: dict[str, Any], theirs: dict[str, Any], yours: dict[str, Any]
    ) -> dict[str, Any]:
        merged = type(theirs)()
        for key in [*theirs, *(key for key in yours if key not in theirs)]:
            value = self.node((*path, key), base.get(key), theirs.get(key), yours.get(key))
            if value is not None or not isinstance(theirs, Keyed):
                merged[key] = value
        return merged

    def _decide(self, path: Path, base: Any, theirs: Any, yours: Any) -> Any:
        kind, name, field = _place(path)
        outcome: Outcome = "clash"
        if _same(theirs, yours):
            outcome = "same"
        elif _same(yours, base):
            outcome = "theirs"
        elif _same(theirs, base):
            outcome = "yours"
        kept: Side = "yours" if outcome == "yours" else "theirs"
        if outcome == "clash":
            kept = self.keep.get(key_of(kind, name, field), "theirs")
        seen, in_force, wanted = _shown(base), _shown(theirs), _shown(yours)
        row = Beside(kind, name, field, seen, in_force, wanted, outcome, kept)
        self.rows.append(row)
        return yours if kept == "yours" else theirs


def _is_object(path: Path) -> bool:
    return len(path) == 2 or (len(path) == 4 and path[2] == "applications")


def _place(path: Path) -> tuple[Kind, str, str]:
    if len(path) > 3 and path[2] == "applications":
        return "application", f"{path[1]}/{path[3]}", ".".join(path[4:])
    return KINDS[path[0]], path[1], ".".join(path[2:])


def _tree(value: Any) -> Any:
    """Lists of objects by name; a list of plain values stays one value."""
    match value:
        case dict():
            return {key: _tree(item) for key, item in value.items()}
        case [dict(), *_]:
            return Keyed((identity(item), _tree(item)) for item in value)
        case []:
            return Keyed()  # whichever it is: an empty one of both is the same
    return value


def _plain(value: Any) -> Any:
    match value:
        case Keyed():
            return [_plain(item) for item in value.values()]
        case dict():
            return {key: _plain(item) for key, item in value.items()}
    return value


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return sorted(one) == sorted(other)
    return bool(one == other)


def _shown(value: Any) -> Any:
    """As plain values, without what is unset and without a tenant's applications."""
    value = _plain(value)
    if not isinstance(value, dict):
        return value
    return {
        key: item
        for key, item in value.items()
        if item not in (None, [], {}) and key != "applications"
    }
