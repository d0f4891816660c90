"""What `serve` refuses before it starts anything, in one line that says what to do."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import pytest
import uvicorn
from django.core.management import CommandError, call_command

from fairlane.environment import ROOT
from fairlane.management.commands import serve
from fairlane.management.commands.serve import DrainingServer, worker_command


def test_fewer_than_one_worker_is_refused() -> None:
    with pytest.raises(CommandError, match=r"--workers is 0; it takes 1 or more"):
        call_command("serve", workers=0)


def test_several_workers_without_redis_are_told_that_they_need_it(
    settings: Any,
) -> None:
    settings.REDIS_URL = ""
    with pytest.raises(CommandError, match=r"--workers is 2: .* Set REDIS_URL"):
        call_command("serve", workers=2)


def test_a_port_past_the_last_one_is_refused(settings: Any) -> None:
    """The system would listen on the number that its lowest 16 bits make."""
    with pytest.raises(CommandError, match=r"--port is 99999; it takes 0 .* to 65535"):
        call_command("serve", port=99999)


@pytest.mark.parametrize("workers", [1, 2])
def test_an_address_that_another_has_is_refused(
    settings: Any, workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.REDIS_URL = "redis://127.0.0.1:1/0"
    monkeypatch.setattr(serve, "check_migrations", lambda: None)
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        said = rf"could not start on 127.0.0.1:{port}: Address already in use"
        with pytest.raises(CommandError, match=said):
            call_command("serve", port=port, workers=workers)


def test_a_host_that_nobody_knows_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serve, "check_migrations", lambda: None)
    with pytest.raises(CommandError, match=r"could not start on nowhere.invalid:8000: "):
        call_command("serve", host="nowhere.invalid")


async def test_a_start_that_waits_for_a_server_that_is_away_ends_when_told_to() -> None:
    asked = asyncio.Event()

    async def never_ready(_scope: Any, receive: Any, _send: Any) -> None:
        await receive()
        asked.set()
        await asyncio.Event().wait()

    server = DrainingServer(uvicorn.Config(never_ready, lifespan="on", log_config=None))
    serving = asyncio.create_task(server.serve())
    await asyncio.wait_for(asked.wait(), 60)
    server.should_exit = True
    await asyncio.wait_for(serving, 60)
    assert not server.started


async def test_a_start_that_fails_ends_by_itself_and_not_by_an_exit_within_a_task() -> None:
    """Which the loop would tell with two tracebacks, after the line that says what is wrong."""

    async def fails(_scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "lifespan.startup.failed", "message": "no room"})

    server = DrainingServer(uvicorn.Config(fails, lifespan="on", log_config=None))
    await asyncio.wait_for(server.serve(), 60)
    assert server.failed
    assert not server.started


async def test_a_start_that_is_cut_short_is_no_fault() -> None:
    """uvicorn would tell it as one, with a traceback."""
    from fairlane.asgi import Fairlane

    asked = asyncio.Event()

    class Waits:
        async def start(self) -> None:
            asked.set()
            await asyncio.Event().wait()

    async def pass_on(*_: Any) -> None:
        pass

    app = Fairlane(cast(Any, Waits()), console=False)
    starting = asyncio.create_task(app({"type": "lifespan"}, pass_on, pass_on))
    await asyncio.wait_for(asked.wait(), 60)
    starting.cancel()
    await starting


def test_a_start_that_cannot_write_names_the_file_and_the_setting(settings: Any) -> None:
    from fairlane.asgi import said

    settings.FAIRLANE_DATA_DIR = Path("/data")
    told = said(PermissionError(13, "Permission denied", "/data/journal"))
    assert told == "Permission denied: /data/journal; files lie in /data (FAIRLANE_DATA_DIR)"


def test_a_database_without_its_migrations_stops_the_start(tmp_path: Path) -> None:
    own = {"SECRET_KEY": "only-for-tests", "FAIRLANE_DATA_DIR": str(tmp_path)}
    ended = subprocess.run(
        [sys.executable, "manage.py", "serve", "--port", "0"],
        cwd=ROOT,
        env={**os.environ, **own, "DATABASE_URL": "", "REDIS_URL": ""},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert ended.returncode == 1
    assert "python manage.py migrate" in ended.stderr
    assert len(ended.stderr.strip().splitlines()) == 1
    assert not (tmp_path / "journal").exists()


def test_the_worker_keeps_its_schedule_in_the_data_folder(settings: Any) -> None:
    said = worker_command()
    schedule = Path(said[said.index("--schedule") + 1])
    assert schedule.parent == settings.FAIRLANE_DATA_DIR


HANGS = """
import threading
from fairlane.management.commands.serve import end_in
threading.Thread(target=threading.Event().wait).start()
end_in(0.1)
"""


def test_a_thread_that_hangs_does_not_keep_a_process_that_has_ended() -> None:
    own = {**os.environ, "DJANGO_SETTINGS_MODULE": "fairlane.settings"}
    assert (
        subprocess.run([sys.executable, "-c", HANGS], cwd=ROOT, env=own, timeout=60).returncode == 0
    )
