"""`manage.py engine` as a process: one line when it is ready, clean ends, clear refusals."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from tests.integration.engine.asking import CHAT, chat

ROOT = Path(__file__).resolve().parents[3]


DJANGO = ("manage.py", "engine")
ALONE = ("-m", "scheduling.simulate.server")


@contextmanager
def started(entry: tuple[str, ...], *options: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    nowhere = os.environ | {"DATABASE_URL": "postgres://nobody@127.0.0.1:1/none"}
    process = subprocess.Popen(
        [sys.executable, *entry, "--port", "0", *options], cwd=ROOT, env=nowhere, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        yield process, process.stdout.readline()
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize(("entry", "end"), [(DJANGO, signal.SIGINT), (ALONE, signal.SIGTERM)])
def test_it_says_where_it_is_and_that_it_is_simulated_and_ends_cleanly(entry, end):
    with started(entry, "--profile", "fast", "--model", "m", "alias") as (process, line):
        url = re.search(r"http://127\.0\.0\.1:\d+", line)[0]
        assert "imulated" in line
        answer = httpx.post(f"{url}{CHAT}", json=chat() | {"model": "alias"}, timeout=60)
        assert answer.json()["model"] == "alias"
        process.send_signal(end)
        _, errors = process.communicate(timeout=60)
        assert (process.returncode, errors) == (0, "")


@pytest.mark.parametrize(
    ("entry", "options", "named"),
    [
        (DJANGO, ("--profile", "nope"), "nope"),
        (ALONE, ("--profile", "nope"), "nope"),
        (ALONE, ("--speed", "0"), "--speed"),
        (ALONE, ("--port", "99999"), "port"),
        (ALONE, ("--scheduling-policy", "random"), "random"),
    ],
)
def test_what_it_cannot_start_with_is_named(entry, options, named):
    ended = subprocess.run(
        [sys.executable, *entry, *options],
        cwd=ROOT, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert ended.returncode != 0
    assert named in ended.stderr
    assert "Traceback" not in ended.stderr
