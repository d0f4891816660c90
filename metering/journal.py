"""What survives a kill: one folder a gateway process, append-only files of JSON lines.

1. `opened` is written before an engine is asked, `ended` before the caller sees the last byte. A
   line is on its way to the disk in one `os.write`; it survives the process, and with `sync` the
   machine.
2. The journal is also the queue: the ledger reads the lines back from the files, so memory does not
   grow while the database is away, and recovery is the same code as every day's work.
3. A file goes when each line in it is in the database and no request opened in it is still open.
4. A folder belongs to the process that holds its lock. One whose lock is free is a dead process's.
5. A last line without its end is no line. Whoever cannot write keeps the bytes and tries again.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Self

import msgspec
import structlog
from msgspec.structs import asdict

from metering.core.cut import Cut
from metering.core.record import TAKEN_FOR_DEAD, UsageRecord

FILE_BYTES = 8 * 2**20
LOCK = "lock"
OPENED, ENDED, CUT = b'{"opened":', b'{"ended":', b'{"cut":'
END = b"}\n"

log = structlog.get_logger(__name__)
_encode = msgspec.json.Encoder().encode

Position = tuple[int, int]  # number of the file, bytes into it


class OpenEntry(msgspec.Struct, frozen=True, kw_only=True):
    """Enough of a request that an engine is about to be asked for, to settle it after a crash."""

    request_id: str
    at: datetime
    tenant: str
    application: str = ""
    key: str = ""
    model: str = ""
    lane: str = ""
    interaction: str = ""
    endpoint: str = ""
    prompt_tokens: int = 0  # estimated
    completion_tokens: int = 0  # expected
    estimated_cost: float = 0.0
    queue_ms: float = 0.0
    policy_revision: int = 0
    accounts: tuple[str, ...] = ()

    def abandoned(self) -> UsageRecord:
        """The record of a request whose gateway died: the estimate stands, and says so."""
        return UsageRecord(
            **asdict(self),
            usage_source="estimated",
            cost=self.estimated_cost,
            status=500,
            finish_reason="error",
            throttle_reason=TAKEN_FOR_DEAD,
        )


def file_name(number: int) -> str:
    return f"{number:08d}.jsonl"


def file_numbers(folder: Path) -> list[int]:
    return sorted(int(path.stem) for path in folder.glob("*.jsonl") if path.stem.isdigit())


class Journal:
    """The writing end. Its methods are quick enough for an event loop and safe from threads."""

    def __init__(self, folder: Path, lock_fd: int, file_bytes: int) -> None:
        self.folder = folder
        self._lock_fd = lock_fd
        self._file_bytes = file_bytes
        self._mutex = threading.Lock()
        self._unwritten = b""
        self._number = 0
        self._fd = -1
        self._size = 0
        self._rotate_at = file_bytes
        self._rotate()

    @classmethod
    def start(cls, base: Path, gateway: str = "gateway", file_bytes: int = FILE_BYTES) -> Self:
        """A journal of this process's own under `base`.

        Raises:
            OSError: the folder cannot be written.
        """
        base.mkdir(parents=True, exist_ok=True)
        name = f"{re.sub('[^A-Za-z0-9]+', '-', gateway)}-{uuid.uuid4().hex[:12]}"
        young, folder = base / f".{name}", base / name
        young.mkdir()
        lock_fd = _try_lock(young)
        assert lock_fd is not None
        young.rename(folder)  # seen by others only when it is locked
        return cls(folder, lock_fd, file_bytes)

    def opened(self, entry: OpenEntry) -> None:
        self._append(OPENED + _encode(entry) + END)

    def ended(self, record: UsageRecord) -> None:
        self._append(ENDED + _encode(record) + END)

    def cut(self, cut: Cut) -> None:
        """The counters as they are after all that has `ended` before it, and nothing else."""
        self._append(CUT + _encode(cut) + END)

    def position(self) -> Position:
        """Where the next line goes."""
        with self._mutex:
            return self._number, self._size + len(self._unwritten)

    @property
    def unwritten_bytes(self) -> int:
        """Above zero while the disk takes no more."""
        return len(self._unwritten)

    def after(self, position: Position) -> bytes:
        """Whole lines that follow it in the file that is being written, on the disk or, while that
        takes no more, in memory."""
        number, start = position
        with self._mutex:
            if number != self._number:
                return b""
            with (self.folder / file_name(number)).open("rb") as file:
                file.seek(start)
                written = file.read(max(0, self._size - start))
            lines = written + self._unwritten[max(0, start - self._size) :]
        return lines[: lines.rfind(b"\n") + 1]

    def retry(self) -> None:
        """Write what the disk did not take before."""
        if self._unwritten:
            self._append(b"")

    def sync(self) -> None:
        """Make what is written outlive the machine; slow, so not for the event loop."""
        with self._mutex:
            fd = os.dup(self._fd)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def close(self, discard: bool = False) -> None:
        """Let go of the folder; `discard` when everything in it is in the database."""
        with self._mutex:
            if self._fd < 0:
                return
            os.close(self._fd)
            self._fd = -1
        if discard:
            shutil.rmtree(self.folder, ignore_errors=True)
        os.close(self._lock_fd)

    def _append(self, line: bytes) -> None:
        with self._mutex:
            rest = self._unwritten + line if self._unwritten else line
            try:
                while rest:
                    written = os.write(self._fd, rest)
                    self._size += written
                    rest = rest[written:]
            except OSError as error:
                if not self._unwritten:
                    log.error("journal_cannot_write", folder=str(self.folder), error=str(error))
            self._unwritten = rest
            if self._size >= self._rotate_at and not rest:
                self._rotate()

    def _rotate(self) -> None:
        path = self.folder / file_name(self._number + 1)
        try:
            fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        except OSError as error:
            if self._fd < 0:
                raise
            self._rotate_at += self._file_bytes
            log.error("journal_cannot_rotate", path=str(path), error=str(error))
            return
        if self._fd >= 0:
            os.close(self._fd)
        self._number, self._fd, self._size = self._number + 1, fd, 0
        self._rotate_at = self._file_bytes


def _try_lock(folder: Path) -> int | None:
    """The open lock file, or None where another process holds it."""
    fd = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        return None
    return fd


@contextmanager
def claim(folder: Path) -> Iterator[bool]:
    """Hold a folder's lock, if its process is dead."""
    try:
        fd = _try_lock(folder)
    except FileNotFoundError:  # another process has just recovered it
        fd = None
    try:
        yield fd is not None
    finally:
        if fd is not None:
            os.close(fd)


def folders(base: Path) -> list[Path]:
    """Every process's folder, living and dead."""
    if not base.is_dir():
        return []
    return sorted(p for p in base.iterdir() if p.is_dir() and not p.name.startswith("."))
