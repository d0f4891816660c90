"""One heap for all threads of a process.

glibc gives threads heaps of their own, and what one has free no other may use. Those of the
gateway's threads grew by some KiB a minute for hours, though nothing was kept, and held 2 MiB more
(docs/benchmarks.md, Soak). Under the interpreter's lock two threads seldom ask at once: sharing one
costs nothing that could be measured.
"""

from __future__ import annotations

import ctypes
from contextlib import suppress

M_ARENA_MAX = -8  # malloc.h


def share() -> None:
    """Before there are other threads: a heap that is there stays. Nothing where the C library has
    no such setting (musl, macOS)."""
    with suppress(AttributeError):
        ctypes.CDLL(None).mallopt(M_ARENA_MAX, 1)
