"""Policy text: YAML (and so JSON) in, canonical YAML out.

1. Every place in the document has a line, so that a refusal can point at it.
2. A key given twice, a second document, an anchor or a tag is refused, never silently resolved:
   what a person reads in the file is what is in force. Without anchors a small text cannot
   unfold into a large document either. So with numbers that YAML 1.1 reads otherwise than people:
   `017` would be 15, and `1:30` 90.
3. `dump(parse(dump(x)))` is `dump(x)`, byte for byte.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import yaml

from tenants.core.issue import Invalid, Issue, Loc, path_text, short

DEEPEST = 20
LARGEST_BITS = 1024  # of a number
LARGEST = 16 * 2**20  # characters; a policy of 10 000 tenants takes about 4 million
MOST_VALUES = 500_000  # the same policy has about half of them; each takes some 10 µs to read
MOST_ISSUES = 500

NUMBERS = ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")
TOO_MANY = f"a policy has at most {MOST_VALUES:,} values"

OTHER_BASE = re.compile(r"[-+]?(0[0-9_]+|[0-9_]+(:[0-9_.]+)+)")
DIGITS = re.compile(r"[-+]?[0-9_]+")

Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
Dumper: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


@dataclass(slots=True)
class Text:
    """What a text says, and on which line it says it."""

    data: Any
    lines: dict[Loc, int] = field(default_factory=dict)

    def line(self, loc: Loc) -> int | None:
        """The line of the place, or of the nearest one around it."""
        while loc not in self.lines and loc:
            loc = loc[:-1]
        return self.lines.get(loc)


def parse(text: str) -> Text:
    """Read one document.

    Raises:
        Invalid: not YAML, or YAML that a policy may not use; with every issue and its line.
    """
    if len(text) > LARGEST:
        raise Invalid([_issue(None, f"the text is larger than {LARGEST} characters")])
    try:
        return _Reader(text).read()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else None
        raise Invalid([_issue(line, f"not YAML: {error.problem or error.context}")]) from error
    except yaml.YAMLError as error:
        raise Invalid([_issue(None, f"not YAML: {error}")]) from error
    except UnicodeEncodeError as error:
        message = f"not text: {short(error.object[error.start])} is half of a character"
        raise Invalid([_issue(None, message)]) from error


def check_size(data: Any) -> None:
    """As of a text, of values that came as such. Raises Invalid."""
    left, waiting = MOST_VALUES, [data]
    while waiting:
        value = waiting.pop()
        left -= 1
        if isinstance(value, dict | list):
            waiting.extend(value.values() if isinstance(value, dict) else value)
        if left < len(waiting):
            raise Invalid([_issue(None, TOO_MANY)])


def dump(data: dict[str, Any]) -> str:
    text: str = yaml.dump(
        data, Dumper=Dumper, sort_keys=False, allow_unicode=True, width=100, default_flow_style=None
    )
    return text


def _issue(line: int | None, message: str, path: str = "", loc: Loc = ()) -> Issue:
    return Issue(path, line, "", message, loc)


class _Reader:
    """Walks the parser's events; the scalars' meaning is PyYAML's own."""

    def __init__(self, text: str) -> None:
        self._events: Iterator[Any] = iter(yaml.parse(text, Loader=Loader))
        self._scalars: Any = yaml.SafeLoader("")
        self._lines: dict[Loc, int] = {}
        self._issues: list[Issue] = []
        self._values = 0

    def read(self) -> Text:
        next(self._events)  # stream start
        data: Any = None
        if isinstance(next(self._events), yaml.DocumentStartEvent):
            data = self._value(next(self._events), ())
            next(self._events)  # document end
            following = next(self._events)
            if isinstance(following, yaml.DocumentStartEvent):
                self._refuse(following, (), "a policy is one document; a second one begins here")
        if self._issues:
            raise Invalid(self._issues)
        return Text(data, self._lines)

    def _refuse(self, event: Any, loc: Loc, message: str) -> None:
        if len(self._issues) < MOST_ISSUES:
            line = event.start_mark.line + 1
            self._issues.append(_issue(line, message, path_text(None, loc), loc))

    def _value(self, event: Any, loc: Loc) -> Any:
        self._values += 1
        if self._values > MOST_VALUES:
            mark = event.start_mark
            raise yaml.MarkedYAMLError(problem=TOO_MANY, problem_mark=mark)
        self._lines.setdefault(loc, event.start_mark.line + 1)
        if event.anchor is not None:
            self._refuse(event, loc, "anchors and aliases are refused; write the value out")
        if isinstance(event, yaml.AliasEvent):
            return None
        if event.tag not in (None, "!"):
            self._refuse(event, loc, f"tags are refused: {event.tag}")
        if isinstance(event, yaml.ScalarEvent):
            return self._scalar(event, loc)
        if len(loc) >= DEEPEST:
            mark = event.start_mark
            raise yaml.MarkedYAMLError(problem=f"nested deeper than {DEEPEST}", problem_mark=mark)
        if isinstance(event, yaml.SequenceStartEvent):
            return self._sequence(loc)
        return self._mapping(loc)

    def _sequence(self, loc: Loc) -> list[Any]:
        items: list[Any] = []
        while not isinstance(event := next(self._events), yaml.SequenceEndEvent):
            items.append(self._value(event, (*loc, len(items))))
        return items

    def _mapping(self, loc: Loc) -> dict[str, Any]:
        items: dict[str, Any] = {}
        while not isinstance(event := next(self._events), yaml.MappingEndEvent):
            key = self._key(event, loc)
            if key in items:
                first = self._lines[(*loc, key)]
                self._refuse(event, loc, f"key {short(key)} is given twice, first on line {first}")
            self._lines.setdefault((*loc, key), event.start_mark.line + 1)
            items[key] = self._value(next(self._events), (*loc, key))
        return items

    def _key(self, event: Any, loc: Loc) -> str:
        if isinstance(event, yaml.ScalarEvent) and event.value == "<<":
            self._refuse(event, loc, "merge keys (<<) are refused; write the values out")
            return "<<"
        key = self._value(event, (*loc, "a key"))
        self._lines.pop((*loc, "a key"), None)
        if not isinstance(key, str):
            self._refuse(event, loc, f"a key must be plain text, not {short(key)}")
        return str(key)

    def _scalar(self, event: Any, loc: Loc) -> Any:
        tag = self._scalars.resolve(yaml.ScalarNode, event.value, event.implicit)
        if tag in NUMBERS and OTHER_BASE.fullmatch(event.value):
            message = f"{short(event.value)} is no plain number; write it in decimal, or in quotes"
            self._refuse(event, loc, message)
            return None
        if tag in NUMBERS and DIGITS.fullmatch(event.value) and len(event.value) > LARGEST_BITS:
            self._refuse(event, loc, f"{short(event.value)} cannot be read: too large a number")
            return None
        try:
            value = self._scalars.construct_object(
                yaml.ScalarNode(tag, event.value, event.start_mark, event.end_mark)
            )
        except (yaml.YAMLError, ValueError) as error:
            self._refuse(event, loc, f"{short(event.value)} cannot be read: {error}")
            return None
        if isinstance(value, int) and value.bit_length() > LARGEST_BITS:
            # Python reads such a number in hexadecimal, and cannot show it in a refusal.
            self._refuse(event, loc, f"{short(event.value)} cannot be read: too large a number")
            return None
        return value
