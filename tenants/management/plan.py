"""What a change would do, told as a plan: one object after another, and a line of counts."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, Literal

from tenants.core.diff import Change, identity
from tenants.core.issue import IDENTITY
from tenants.core.warnings import PolicyWarning

Mark = Literal["+", "~", "-", "!", " "]
COLOURS: Mapping[str, str] = {"+": "\033[32m", "~": "\033[33m", "-": "\033[31m", "!": "\033[35m"}
PLAIN = "\033[0m"
Line = tuple[Mark, str]  # what colours it, and its text


def coloured(options: Mapping[str, Any], is_terminal: bool) -> bool:
    """`--color` says yes, `--no-color` and NO_COLOR say no, else a terminal does."""
    if options.get("color") or options.get("force_color"):
        return True
    return is_terminal and not options.get("no_color") and not os.environ.get("NO_COLOR")


def painted(lines: Iterable[Line], colour: bool) -> Iterator[str]:
    for mark, text in lines:
        yield f"{COLOURS[mark]}{text}{PLAIN}" if colour and mark in COLOURS else text


def plan(changes: Sequence[Change], warnings: Sequence[PolicyWarning]) -> Iterator[Line]:
    """Objects in the document's order; of a new or removed one its whole content."""
    for (kind, name), group in groupby(changes, lambda each: (each.kind, each.name)):
        fields = list(group)
        mark = mark_of(fields[0])
        yield mark, f"  {mark} {kind} {name}"
        for change in fields:
            if change.field:
                yield mark, f"      {change.field}: {text(change.old)} → {text(change.new)}"
            else:
                yield from content(mark, change.new or change.old)
    for warning in warnings:
        sign: Mark = "!" if warning.level == "warning" else " "
        yield sign, f"  {'!' if sign == '!' else '·'} {warning.message}"


def mark_of(change: Change) -> Mark:
    if change.field:
        return "~"
    return "+" if change.old is None else "-"


def content(mark: Mark, value: Any, field: str = "") -> Iterator[Line]:
    match value:
        case dict():
            for key, inner in value.items():
                yield from content(mark, inner, f"{field}.{key}" if field else key)
        case [dict(), *_]:
            for item in value:
                rest = {key: inner for key, inner in item.items() if key not in IDENTITY}
                yield mark, f"      {field}.{identity(item)}: {text(rest) if rest else 'added'}"
        case _ if field not in IDENTITY:
            yield mark, f"      {field}: {text(value)}"


def text(value: Any) -> str:
    if value is None:
        return "unset"
    if isinstance(value, dict):
        return ", ".join(f"{key} {text(inner)}" for key, inner in value.items())
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def counted(changes: Sequence[Change]) -> str:
    objects = {(each.kind, each.name): mark_of(each) for each in changes}
    marks = list(objects.values())
    add, edit, remove = (marks.count(mark) for mark in ("+", "~", "-"))
    return f"Plan: {add} to add, {edit} to change, {remove} to remove."
