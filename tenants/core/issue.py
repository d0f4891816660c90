"""One thing that is wrong with a policy, told so that its author can find and mend it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

Loc = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Issue:
    """`path` names the place (`tenants[acme].weight`), `line` counts from 1 where text was given,
    `message` names the field, the value and what is allowed. `loc` is the path by position."""

    path: str
    line: int | None
    value: str
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
    return Invalid([Issue(field, None, short(value), message, (field,))])


def short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}…"


def path_text(data: Any, loc: Loc) -> str:
    """`tenants[acme].budgets[hourly].cost`: by name where there is one, else by position."""
    text = ""
    for part in loc:
        if isinstance(part, int):
            data = data[part] if isinstance(data, list) and part < len(data) else None
            text += f"[{_label(data, part)}]"
        else:
            data = data.get(part) if isinstance(data, Mapping) else None
            text += f".{part}" if text else part
    return text


def _label(item: Any, position: int) -> str | int:
    if isinstance(item, Mapping):
        for key in ("name", "model", "url"):
            if isinstance(item.get(key), str):
                return str(item[key])[:80]
    return position
