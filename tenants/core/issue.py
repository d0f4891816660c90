"""One thing that is wrong with a policy, told so that its author can find and mend it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Any

IDENTITY = ("name", "model", "url")  # the one of them that an object has names it in its list
LONGEST = 80  # characters of a value that is told again

Loc = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Issue:
    """`path` names the place (`tenants[acme].weight`), `line` counts from 1 where text was given,
    `message` names the field, the value and what is allowed. `value` is one of JSON. `loc` is the
    path by position."""

    path: str
    line: int | None
    value: Any
    message: str
    loc: Loc = ()

    def __str__(self) -> str:
        where = f"line {self.line}: " if self.line is not None else ""
        place = f"{self.path}: " if self.path else ""
        return f"{where}{place}{self.message}"


class Invalid(ValueError):
    """A document with issues; `issues` has all that were found, by line."""

    def __init__(self, issues: Iterable[Issue]) -> None:
        self.issues = sorted(issues, key=lambda issue: (issue.line or 0, issue.path))
        super().__init__("; ".join(str(issue) for issue in self.issues))


def refused(field: str, value: object, message: str) -> Invalid:
    """One wrong field, as what the caller raises."""
    return Invalid([Issue(field, None, told(value), message, (field,))])


def short(value: object) -> str:
    """A value within a sentence: text in quotes, anything else as JSON and YAML write it."""
    plain = isinstance(value, str | float)
    return _cut(repr(value) if plain else _json(value))


def told(value: object) -> Any:
    """A value as JSON, for a program that reads a refusal; one that is long is cut to text."""
    if isinstance(value, str):
        return _cut(value)
    if isinstance(value, float) and not isfinite(value):
        return str(value)
    text = _json(value)
    return json.loads(text) if len(text) <= LONGEST else _cut(text)


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}…"


def path_text(data: Any, loc: Loc) -> str:
    """`tenants[acme].budgets[hourly].cost`: by name where there is one, else by position."""
    text = ""
    for part in loc:
        if isinstance(part, int):
            data = data[part] if isinstance(data, list) and part < len(data) else None
            text += f"[{_label(data, part)}]"
        else:
            data = data.get(part) if isinstance(data, Mapping) else None
            text += f".{_shown(part)}" if text else _shown(part)
    return text


def _shown(text: str) -> str:
    """On one line of a terminal or a log: what does not print, or turns the writing round, as
    Python writes it."""
    return text if text.isprintable() else repr(text)[1:-1]


def _label(item: Any, position: int) -> str | int:
    if isinstance(item, Mapping):
        for key in IDENTITY:
            if isinstance(item.get(key), str):
                return _shown(item[key][:80])
    return position
