"""Threads share one heap, as the C library itself tells."""

from __future__ import annotations

import platform
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="a setting of glibc")
TELL = """
import ctypes, sys, threading
from fairlane import heap

if sys.argv[1] == "shared":
    heap.share()
there = threading.Barrier(4)

def take():
    kept = [bytes(4000) for _ in range(100)]
    there.wait()

threads = [threading.Thread(target=take) for _ in range(4)]
for each in threads:
    each.start()
for each in threads:
    each.join()
libc = ctypes.CDLL(None)
libc.fopen.restype = ctypes.c_void_p
told = ctypes.c_void_p(libc.fopen(sys.argv[2].encode(), b"w"))
libc.malloc_info(0, told)
libc.fclose(told)
"""


def heaps(how: str, told: Path) -> int:
    subprocess.run([sys.executable, "-c", TELL, how, str(told)], check=True)
    return told.read_text().count("<heap nr=")


def test_all_threads_take_from_one(tmp_path: Path) -> None:
    assert heaps("shared", tmp_path / "told") == 1


def test_left_alone_they_have_several(tmp_path: Path) -> None:
    assert heaps("own", tmp_path / "told") > 1
