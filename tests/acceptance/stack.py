"""The product as its user starts it: processes, sockets, a folder of its own."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import psutil
import yaml

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_S = 120.0  # it costs nothing but where a test fails; processes start slowly side by side


def until(true: Callable[[], Any], what: str, patience_s: float = PATIENCE_S) -> Any:
    """Wait for a condition; its value, once it holds."""
    deadline = time.monotonic() + patience_s
    while True:
        found = true()
        if found:
            return found
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {patience_s:g} s in vain: {what}")
        time.sleep(0.02)


def free_port() -> int:
    """A port that stays this process's: no other test is given it, nor does the kernel give it to
    a connection, however long its server takes to start."""
    first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    while True:
        port = random.randrange(10_000, first if first > 12_000 else 60_000)
        if _is_ours(port) and _is_free(port):
            return port


def _is_ours(port: int) -> bool:
    """The name of a socket that is no file is this process's until it ends."""
    mine = socket.socket(socket.AF_UNIX)
    try:
        mine.bind(f"\0fairlane-test-port-{port}")
    except OSError:
        mine.close()
        return False
    mine.detach()
    return True


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def alive(process: psutil.Process) -> bool:
    """Not once it has ended, whether or not anybody has taken note of its end."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def answers(url: str, key: str = "") -> bool:
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    try:
        return httpx.get(url, headers=headers, timeout=20).status_code == 200
    except httpx.TransportError:
        return False


def serve(folder: Path, env: dict[str, str], port: int, *options: str) -> subprocess.Popen[bytes]:
    """Leader of a session of its own; what it says is in the folder's `serve.log`."""
    with (folder / "serve.log").open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "manage.py", "serve", "--port", str(port), *options],
            cwd=ROOT,
            env=env,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )


def ready(serving: subprocess.Popen[bytes], folder: Path, port: int, path: str = "/readyz") -> None:
    """Wait until it is; fails with what it said where it ended instead."""

    def is_up() -> bool:
        assert serving.poll() is None, (folder / "serve.log").read_text()
        return answers(f"http://127.0.0.1:{port}{path}")

    until(is_up, f"serve is ready; its log is {folder}/serve.log")


@dataclass
class Stack:
    """One data folder, one policy, one `serve`, and engines beside it."""

    folder: Path
    engines: list[str] = field(default_factory=list)  # base URLs with /v1
    port: int = 0
    serving: subprocess.Popen[bytes] | None = None
    redis_url: str = ""
    settings: dict[str, str] = field(default_factory=dict)  # beside those of `env`

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def env(self) -> dict[str, str]:
        own = {"FAIRLANE_DATA_DIR": str(self.folder), "SECRET_KEY": "only-for-tests"}
        given = {"DATABASE_URL": "", "REDIS_URL": self.redis_url, **self.settings}
        return {**os.environ, **own, **given}

    def manage(self, *arguments: str, give: str | None = None, fails: bool = False) -> str:
        done = subprocess.run(
            [sys.executable, "manage.py", *arguments],
            cwd=ROOT,
            env=self.env,
            input=give,
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode != 0) is fails, done.stdout + done.stderr
        return done.stdout

    def apply(self, policy: dict[str, Any]) -> None:
        self.manage("policy", "apply", "-", give=yaml.safe_dump(policy))

    def key(self, tenant: str, *more: str) -> str:
        """A new key; where the product runs, one that it knows by now."""
        made = self.manage("keys", "create", "--tenant", tenant, "--json", *more)
        key = str(json.loads(made)["key"])
        if self.serving is not None:
            until(lambda: answers(f"{self.url}/v1/models", key), "the key is in force")
        return key

    def records(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.manage("usage", "export").splitlines()]

    def start(self, *options: str) -> None:
        self.port = self.port or free_port()
        self.serving = serve(self.folder, self.env, self.port, *options)
        ready(self.serving, self.folder, self.port)

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        assert self.serving is not None
        self.serving.send_signal(number)
        return self.ended()

    def ended(self) -> int:
        """Wait for the end of what was told to stop; its exit status."""
        assert self.serving is not None
        status = self.serving.wait(PATIENCE_S)
        self.serving = None
        return status


@contextmanager
def engine(folder: Path, *options: str, model: str = "demo-chat") -> Iterator[str]:
    """A simulated engine as a process of its own, without Django, which takes seconds to load; its
    base URL."""
    port = free_port()
    log = (folder / f"engine-{port}.log").open("ab")
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "scheduling.simulate.server"),
            *("--port", str(port), "--model", model, *options),
        ],
        cwd=ROOT,
        stdout=log,
        stderr=log,
    )
    log.close()
    try:
        until(lambda: answers(f"http://127.0.0.1:{port}/health"), "the engine answers")
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        process.terminate()
        process.wait(PATIENCE_S)


@contextmanager
def stack(
    folder: Path, policy: Callable[[list[str]], dict[str, Any]], engines: int = 1, *options: str
) -> Iterator[Stack]:
    """Engines, database, policy and `serve`; all of it ends with the block."""
    with ExitStack() as stopping:
        urls = [stopping.enter_context(engine(folder, *options)) for _ in range(engines)]
        made = Stack(folder, urls)
        made.manage("migrate", "--verbosity", "0")
        made.apply(policy(urls))
        made.start()
        try:
            yield made
        finally:
            if made.serving is not None:
                made.stop()


def demo_policy(urls: list[str]) -> dict[str, Any]:
    """The policy of `make run`, its pool pointed at these engines."""
    policy: dict[str, Any] = yaml.safe_load((ROOT / "fairlane/demo/policy.yaml").read_text())
    policy["pools"][0]["endpoints"] = [{"url": url} for url in urls]
    return policy


def password_in(text: str) -> str:
    found = re.search(r'"password": "([^"]+)"', text)
    assert found is not None
    return found[1]
