"""Child processes that live and die with their parent: worker, and in a demo the engines.

A child gets a signal from the kernel when the parent ends, even by `kill -9`, so that no orphan
works on beside the next start's.
"""

from __future__ import annotations

import contextlib
import ctypes
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence

import structlog

log = structlog.get_logger("fairlane.children")

PR_SET_PDEATHSIG = 1  # prctl(2)
LIBC = ctypes.CDLL(None)  # loaded before any fork
RESTART_AFTER_S = 2.0
STOP_WITHIN_S = 10.0


def die_with_parent() -> None:
    """Of the thread that started this process: SIGTERM when it ends, however it ends."""
    if sys.platform == "linux":
        LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


class Children:
    """Keeps each named command running until `stop`, which gives all of them `patience_s`."""

    def __init__(self, patience_s: float = STOP_WITHIN_S) -> None:
        self._patience_s = patience_s
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._stopping = threading.Event()
        self._mutex = threading.Lock()  # no child is started once `stop` has counted them

    def start(
        self,
        name: str,
        command: Sequence[str],
        fds: tuple[int, ...] = (),
    ) -> None:
        """`fds`: open files that it inherits, under the same numbers."""
        arguments = (name, list(command), fds)
        threading.Thread(target=self._keep, args=arguments, daemon=True).start()

    def _keep(self, name: str, command: list[str], fds: tuple[int, ...]) -> None:
        while (child := self._spawn(name, command, fds)) is not None:
            status = child.wait()
            if not self._stopping.is_set():
                log.error("child ended", child=name, status=status, restart_s=RESTART_AFTER_S)
                self._stopping.wait(RESTART_AFTER_S)

    def _spawn(
        self, name: str, command: list[str], fds: tuple[int, ...]
    ) -> subprocess.Popen[bytes] | None:
        """None once stopping. PDEATHSIG follows the thread that starts a child, so that thread
        stays until the child ends."""
        with self._mutex:
            if self._stopping.is_set():
                return None
            self._running[name] = subprocess.Popen(
                command,
                pass_fds=fds,
                stdin=subprocess.DEVNULL,
                process_group=0,  # Ctrl-C reaches the parent, which stops its children in order
                preexec_fn=die_with_parent,
            )
            return self._running[name]

    def stop(self) -> None:
        """Ask each child to end, then make it."""
        with self._mutex:
            self._stopping.set()
        children = [child for child in self._running.values() if child.poll() is None]
        for child in children:
            child.terminate()
        deadline = time.monotonic() + self._patience_s
        for child in children:
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(max(0.1, deadline - time.monotonic()))
            if child.poll() is None:
                child.kill()
