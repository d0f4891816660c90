"""Free text from people, made fit to store and to show."""

from __future__ import annotations

from io import StringIO

LONGEST = 2000
FORMULA = ("=", "+", "-", "@", "\t", "\n")  # a spreadsheet would run what begins with one


def plain(text: str) -> str:
    """Without control characters (PostgreSQL stores no NUL) but for line ends, and not endless."""
    return "".join(char for char in text if char.isprintable() or char in "\n\t")[:LONGEST]


def no_formula(text: str) -> str:
    """For a cell of a CSV: what a spreadsheet would run is made harmless. A lone carriage return,
    which `csv` does not quote, would begin a row."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    return f"'{text}" if text.startswith(FORMULA) else text


def taken(buffer: StringIO) -> str:
    """What was written to it since the last time; for a file that is streamed as it is made."""
    text = buffer.getvalue()
    buffer.seek(0)
    buffer.truncate()
    return text
