"""What stands in an alert's message for programs, in words for people.

A message names budgets by their accounts (`application:acme/nightly/hourly`) and moments in UTC
(`2026-11-30T18:00Z`): so it is the same for everybody, and each reader gets it in words.
A refusal's message has them at once: nothing turns it into words for its caller.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime

NAME = r"[a-z0-9](?:[a-z0-9._-]*[a-z0-9_-])?"
ACCOUNT = rf"(?P<kind>tenant|application|key):(?P<owner>{NAME}(?:/{NAME})?)/(?P<budget>{NAME})"
MOMENT = r"(?P<at>\d{4}-\d\d-\d\dT\d\d:\d\d(?::\d\d)?Z)"
FOUND = re.compile(rf"(?:(?P<the>[Tt]he )?\bbudget )?(?<![\w/.:-]){ACCOUNT}(?![\w/-])|\b{MOMENT}")
Piece = str | re.Match[str]


def pieces(text: str) -> Iterator[Piece]:
    """The text as it stands, and in it what means an account or a moment."""
    at = 0
    for found in FOUND.finditer(text):
        yield text[at : found.start()]
        yield found
        at = found.end()
    yield text[at:]


def budget_words(found: re.Match[str]) -> str:
    """`budget hourly of application nightly of acme`; a sentence may begin with it."""
    owner = found["owner"]
    tenant, _, application = owner.partition("/")
    whose = f"key fl_{owner}" if found["kind"] == "key" else tenant
    if application:
        whose = f"application {application} of {tenant}"
    start = found["the"] or ""
    budget = "Budget" if found.start() == 0 and not start else "budget"
    return f"{start}{budget} {found['budget']} of {whose}"


def the_budget(account: str) -> str:
    """Of an account, as a sentence begins: `The budget hourly of application nightly of acme`."""
    found = FOUND.fullmatch(f"The budget {account}")
    return budget_words(found) if found else f"The budget {account}"


def moment_of(found: re.Match[str]) -> datetime:
    return datetime.fromisoformat(found["at"]).astimezone(UTC)


def in_words(text: str) -> str:
    """For a mail, whose reader's zone nobody knows."""
    return "".join(map(_words, pieces(text)))


def _words(piece: Piece) -> str:
    if isinstance(piece, str):
        return piece
    return f"{moment_of(piece):%d %b %H:%M} UTC" if piece["at"] else budget_words(piece)
