"""Where inside one object an issue of the whole document is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tenants.core.diff import LISTS, Kind
from tenants.core.issue import Invalid, Issue, Loc


def label(kind: Kind, name: str) -> str:
    """The object's path in a document; an application's name is `tenant/application`."""
    if kind == "application":
        tenant, _, own = name.partition("/")
        return f"tenants[{tenant}].applications[{own}]"
    return f"{LISTS[kind]}[{name}]"


def inside(issue: Issue, kind: Kind, name: str) -> Loc | None:
    """The issue's place within the object, or None where it is about another one."""
    if not issue.loc or issue.loc[0] not in LISTS.values():
        return issue.loc
    own, depth = label(kind, name), 4 if kind == "application" else 2
    mine = issue.path == own or issue.path.startswith((f"{own}.", f"{own}["))
    return issue.loc[depth:] if mine else None


@contextmanager
def told_of(kind: Kind, name: str) -> Iterator[None]:
    """Issues of the whole document become issues of the one object that was sent."""
    try:
        yield
    except Invalid as invalid:
        raise Invalid(_relative(issue, kind, name) for issue in invalid.issues) from None


def _relative(issue: Issue, kind: Kind, name: str) -> Issue:
    place = inside(issue, kind, name)
    if place is None or place == issue.loc:
        return issue
    path = issue.path.removeprefix(label(kind, name)).lstrip(".")
    return Issue(path, issue.line, issue.value, issue.message, place)
