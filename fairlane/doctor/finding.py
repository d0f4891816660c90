"""One line of the doctor's."""

from __future__ import annotations

from typing import Literal, NamedTuple

State = Literal["ok", "warn", "fail"]


class Finding(NamedTuple):
    state: State
    subject: str
    found: str
    do: str = ""  # what makes it right


def ok(subject: str, found: str) -> Finding:
    return Finding("ok", subject, found)


def warn(subject: str, found: str, do: str = "") -> Finding:
    """It works, but not as one would want in production."""
    return Finding("warn", subject, found, do)


def fail(subject: str, found: str, do: str = "") -> Finding:
    """Something does not work now, or is not safe."""
    return Finding("fail", subject, found, do)
