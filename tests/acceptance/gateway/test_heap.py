"""What the gateway's threads have free, each other thread may use: none has a heap of its own."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

from tests.acceptance.gateway.rig import Rig

HEAP_BYTES = 64 * 2**20  # glibc reserves as much for a thread's, and begins it at a multiple


def heaps_of_threads(pid: int) -> list[str]:
    found, lines = [], Path(f"/proc/{pid}/maps").read_text().splitlines()
    for used, reserved in pairwise(lines):
        start, _ = (int(end, 16) for end in used.split()[0].split("-"))
        _, stop = (int(end, 16) for end in reserved.split()[0].split("-"))
        kinds = used.split()[1], reserved.split()[1]
        if start % HEAP_BYTES == 0 and stop - start == HEAP_BYTES and kinds == ("rw-p", "---p"):
            found.append(used)
    return found


def test_no_thread_has_a_heap_of_its_own(rig: Rig) -> None:
    alice = rig.tenant()
    assert [alice.chat(stream=stream).status for stream in (True, False)] == [200, 200]
    serving = rig.stack.serving
    assert serving is not None
    assert heaps_of_threads(serving.pid) == []
