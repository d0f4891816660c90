"""`kill -9` at random moments: no finished request lost, none doubled, open ones settled."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys

import psycopg
import pytest

from fairlane.environment import ROOT
from tests.integration.metering.records import HOURLY

CHILD = [sys.executable, "-m", "tests.integration.metering.gateway_that_dies"]
ROUNDS = 3


pytestmark = pytest.mark.store


@pytest.fixture
def home(tmp_path):
    """Settings of a gateway with a data folder and a database of its own."""
    given = {**os.environ, "FAIRLANE_DATA_DIR": str(tmp_path), "SECRET_KEY": "only-for-tests"}
    if given["DATABASE_URL"]:
        name = f"killed_{os.getpid()}"
        with psycopg.connect(given["DATABASE_URL"], autocommit=True) as server:
            server.execute(f"CREATE DATABASE {name}")
        given["DATABASE_URL"] = given["DATABASE_URL"].replace("/postgres?", f"/{name}?")
    subprocess.run([sys.executable, "manage.py", "migrate", "-v0"], cwd=ROOT, env=given, check=True)
    return given


def serve_and_kill(home, round_number, lines):
    """Returns the ids that were opened, and those whose end was reported."""
    opened, ended = [], []
    child = subprocess.Popen(
        [*CHILD, "serve", str(round_number)], cwd=ROOT, env=home, stdout=subprocess.PIPE, text=True
    )
    with child:
        for _ in range(lines):
            what, request_id = child.stdout.readline().split()
            (opened if what == "o" else ended).append(request_id)
        child.kill()
        for line in child.stdout.read().splitlines(keepends=True):
            if line.endswith("\n"):
                what, request_id = line.split()
                (opened if what == "o" else ended).append(request_id)
    return opened, ended


def test_killed_again_and_again_it_loses_and_doubles_nothing(home):
    moments = random.Random(20_261_129)
    opened, ended = [], []
    for number in range(ROUNDS):
        more_opened, more_ended = serve_and_kill(home, number, moments.randint(1, 3_000))
        opened += more_opened
        ended += more_ended

    reported = subprocess.run(
        [*CHILD, "report"], cwd=ROOT, env=home, check=True, capture_output=True, text=True
    )
    found = json.loads(reported.stdout)
    finish = {request_id: reason for request_id, reason, _ in found["rows"]}
    assert len(finish) == len(found["rows"])
    assert {finish.get(request_id) for request_id in ended} == {"stop"}
    assert set(opened) <= set(finish)
    open_at_the_end = [i for i, reason in finish.items() if reason == "error"]
    assert 1 <= len(open_at_the_end) <= ROUNDS * 6
    assert found["used"][HOURLY.account] == sum(cost for *_, cost in found["rows"])
    assert found["left"] == []
