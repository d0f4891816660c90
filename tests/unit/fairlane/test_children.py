"""Child processes live and die with their parent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fairlane import children as module
from fairlane.children import Children
from fairlane.environment import ROOT

PATIENCE_S = 30.0
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the kernel's signal is Linux's")

NOTES_ITS_START = """
import os, sys, time
with open(sys.argv[1], "a") as notes:
    notes.write(f"{os.getpid()} {os.environ.get('COLOUR', '')}\\n")
time.sleep(3600)
"""
ENDS_AT_ONCE = NOTES_ITS_START.replace("time.sleep(3600)", "sys.exit(3)")
STUBBORN = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + NOTES_ITS_START
PARENT = """
import sys, time
from fairlane.children import Children
Children().start("child", [sys.executable, "-c", sys.argv[2], sys.argv[1]])
time.sleep(3600)
"""


def until(true: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.01)


def starts(notes: Path) -> list[str]:
    return notes.read_text().splitlines() if notes.exists() else []


def runs(pid: int) -> bool:
    """A process that ended and that nobody has asked about yet does not run any more."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    return tmp_path / "starts"


@pytest.fixture
def children() -> Iterator[Children]:
    made = Children()
    yield made
    made.stop()


def command(code: str, notes: Path) -> list[str]:
    return [sys.executable, "-c", code, str(notes)]


def first_pid(notes: Path) -> int:
    until(lambda: starts(notes))
    return int(starts(notes)[0].split()[0])


def test_a_child_that_ends_is_started_again(
    children: Children, notes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "RESTART_AFTER_S", 0.01)
    children.start("child", command(ENDS_AT_ONCE, notes))
    until(lambda: len(starts(notes)) >= 3)
    assert len(set(starts(notes)[:3])) == 3


def test_a_child_that_is_killed_is_started_again(
    children: Children, notes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "RESTART_AFTER_S", 0.01)
    children.start("child", command(NOTES_ITS_START, notes))
    os.kill(first_pid(notes), signal.SIGKILL)
    until(lambda: len(starts(notes)) == 2)


def test_a_child_gets_the_environment(
    children: Children, notes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLOUR", "green")
    children.start("child", command(NOTES_ITS_START, notes))
    until(lambda: starts(notes))
    assert starts(notes)[0].endswith(" green")


def test_a_stop_ends_every_child_and_starts_none_again(
    notes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "RESTART_AFTER_S", 0.01)
    children = Children()
    for name in ("one", "two"):
        children.start(name, command(NOTES_ITS_START, notes))
    until(lambda: len(starts(notes)) == 2)
    children.stop()
    for line in starts(notes):
        until(lambda line=line: not runs(int(line.split()[0])))
    assert len(starts(notes)) == 2


def test_a_stop_kills_the_child_that_will_not_end(
    notes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "STOP_WITHIN_S", 0.2)
    children = Children()
    children.start("child", command(STUBBORN, notes))
    pid = first_pid(notes)
    children.stop()
    until(lambda: not runs(pid))


def test_a_child_ends_with_its_parent_even_by_kill_9(notes: Path) -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(notes), NOTES_ITS_START],
        cwd=ROOT,
        env={**os.environ, "SECRET_KEY": "only-for-tests"},
    )
    try:
        pid = first_pid(notes)
        assert runs(pid)
    finally:
        parent.kill()
        parent.wait()
    until(lambda: not runs(pid))


def test_a_ctrl_c_at_the_terminal_is_the_parents_alone(children: Children, notes: Path) -> None:
    """It goes to the terminal's process group; a child is not in it."""
    children.start("child", command(NOTES_ITS_START, notes))
    assert os.getpgid(first_pid(notes)) != os.getpgid(0)
