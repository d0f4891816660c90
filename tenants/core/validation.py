"""From any data to a Document, or to the list of everything that is wrong with it.

1. Nothing is applied unless there is no issue at all.
2. All issues are told at once: an object with a bad value does not hide those of the others, and
   its name still counts as declared, so that no false "unknown name" follows from it.
3. A message names the field, the value and what is allowed.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator, Mapping
from typing import Any, get_args, get_origin

from pydantic import BaseModel, ValidationError

from tenants.core.crosschecks import Declared, Finding, Objects, budget_findings, findings
from tenants.core.document import TAKES, Budget, Document, Lane, Part, Pool, Tenant, Tier
from tenants.core.issue import Invalid, Issue, Loc, path_text, short, told

MOST_TOLD = 500  # faults of one document
KINDS: dict[str, type[Part]] = {"lanes": Lane, "tiers": Tier, "pools": Pool, "tenants": Tenant}


class KeyPart(Part):
    budgets: list[Budget]


def validate(data: Any, line_of: Callable[[Loc], int | None] = lambda _loc: None) -> Document:
    """The document that `data` says.

    Raises:
        Invalid: with every issue found.
    """
    document, found = _types(data)
    usable = Objects.of(document) if document is not None else _salvage(data)
    found += findings(usable, _declared(data))
    if found or document is None:
        told_of = [_issue(data, finding, line_of) for finding in found[:MOST_TOLD]]
        if (rest := len(found) - MOST_TOLD) > 0:
            told_of.append(Issue("", None, None, f"{rest:,} more faults are not shown"))
        raise Invalid(told_of)
    return document


def _types(data: Any) -> tuple[Document | None, list[Finding]]:
    if not isinstance(data, Mapping):
        return None, [Finding((), data, "a policy is a mapping that begins with: version: 1")]
    try:
        return Document.model_validate(data), []
    except ValidationError as error:
        return None, [_finding(item) for item in error.errors(include_url=False)]


def _salvage(data: Any) -> Objects:
    """The objects that are sound by themselves, or would be without their bad fields."""
    objects = Objects()
    for kind, model in KINDS.items():
        for position, item in enumerate(_items(data, kind)):
            if not isinstance(item, Mapping):
                continue
            bad = _bad_fields(model, item)
            rest = {k: v for k, v in item.items() if k not in bad} if bad else item
            if bad and _bad_fields(model, rest):
                continue
            objects.by_kind[kind][position] = model.model_validate(rest)
            if bad:
                objects.pruned.add((kind, position))
    return objects


def _bad_fields(model: type[Part], item: Mapping[str, Any]) -> set[str | int]:
    try:
        model.model_validate(item)
    except ValidationError as error:
        return {detail["loc"][0] if detail["loc"] else "" for detail in error.errors()}
    return set()


def _items(data: Any, kind: str) -> list[Any]:
    items = data.get(kind) if isinstance(data, Mapping) else None
    return items if isinstance(items, list) else []


def _declared(data: Any) -> Declared:
    def names(kind: str, key: str) -> frozenset[str]:
        named = (item.get(key) for item in _items(data, kind) if isinstance(item, Mapping))
        return frozenset(name for name in named if isinstance(name, str))

    return Declared(names("lanes", "name"), names("tiers", "name"), names("pools", "model"))


def _issue(data: Any, finding: Finding, line_of: Callable[[Loc], int | None]) -> Issue:
    loc = finding.loc
    return Issue(path_text(data, loc), line_of(loc), told(finding.value), finding.message, loc)


def _finding(error: Any, root: type[Part] = Document) -> Finding:
    loc = _place(error["loc"])
    field = next((str(part) for part in reversed(loc) if isinstance(part, str)), "policy")
    value = error["input"]
    match error["type"]:
        case "extra_forbidden":
            allowed = ", ".join(sorted(_fields_at(root, loc[:-1])))
            return Finding(loc, value, f"unknown key {loc[-1]!r}; allowed: {allowed}")
        case "missing":
            return Finding(loc, None, f"{field} is missing")
        case "value_error":
            said = error["msg"].removeprefix("Value error, ")
            shown = "" if isinstance(value, Mapping) else f"{field} is {short(value)}: "
            return Finding(loc, value, f"{shown}{said}")
        case "model_type" | "model_attributes_type":
            return Finding(loc, value, f"{field} is {short(value)}: must be a mapping")
    return Finding(loc, value, f"{field} is {short(value)}: {takes(error)}")


def takes(error: Any) -> str:
    """What one of pydantic's errors says that the field takes, in words."""
    if error["type"] == "string_pattern_mismatch":
        pattern = error["ctx"]["pattern"]
        return f"it takes {TAKES[pattern]}" if pattern in TAKES else f"must match {pattern}"
    said = str(error["msg"]).removeprefix("Value error, ")
    for start in ("Input should", "String should", "List should"):
        said = said.replace(start, "must")
    return said.removesuffix(" after validation, not 0")


def _place(steps: Loc) -> Loc:
    # After a pool's capacity stands the tag of its form: pydantic's own step, no place in the data.
    at = steps[:3] + steps[4:]
    return at if steps[::2][:2] == ("pools", "capacity") else steps


def _fields_at(root: type[BaseModel], loc: Loc) -> Iterator[str]:
    model = root
    for part in loc:
        if isinstance(part, str):
            model = _model_in(model.model_fields[part].annotation) or model
    yield from model.model_fields


def _model_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    if get_origin(annotation) is None and not isinstance(annotation, types.UnionType):
        return None
    return next(filter(None, map(_model_in, get_args(annotation))), None)


def validate_budgets(budgets: list[Any]) -> list[Budget]:
    """A key's own budgets, which stand outside the document.

    Raises:
        Invalid: with every issue found.
    """
    data = {"budgets": budgets}
    try:
        parts = KeyPart.model_validate(data).budgets
        found = list(budget_findings(("budgets",), parts))
    except ValidationError as error:
        found = [_finding(item, KeyPart) for item in error.errors(include_url=False)]
    if found:
        raise Invalid(_issue(data, finding, lambda _loc: None) for finding in found)
    return parts
