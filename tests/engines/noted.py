"""Figures that the tests measured by the way, for docs/engines.md; none of them is asserted."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

NOTED: list[tuple[str, str, str]] = []


def note(engine: str, what: str, value: object) -> None:
    NOTED.append((engine, what, str(value)))


@contextmanager
def timed(engine: str, what: str) -> Iterator[None]:
    begun = time.monotonic()
    yield
    note(engine, what, f"{time.monotonic() - begun:.1f} s")
