"""Free text from people, made fit to store and to show."""

from __future__ import annotations

LONGEST = 2000


def plain(text: str) -> str:
    """Without control characters (PostgreSQL stores no NUL) but for line ends, and not endless."""
    return "".join(char for char in text if char.isprintable() or char in "\n\t")[:LONGEST]
