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


def command(*options: str) -> list[str]:
    return [sys.executable, "manage.py", "engine", *options]


@contextmanager
def started(*options: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    nowhere = os.environ | {"DATABASE_URL": "postgres://nobody@127.0.0.1:1/none"}
    process = subprocess.Popen(
        command("--port", "0", *options), cwd=ROOT, env=nowhere, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        yield process, process.stdout.readline()
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM])
def test_it_says_where_it_is_and_that_it_is_simulated_and_ends_cleanly(end):
    with started("--profile", "fast", "--model", "m", "alias") as (process, line):
        url = re.search(r"http://127\.0\.0\.1:\d+", line)[0]
        assert "imulated" in line
        answer = httpx.post(f"{url}{CHAT}", json=chat() | {"model": "alias"}, timeout=20)
        assert answer.json()["model"] == "alias"
        process.send_signal(end)
        _, errors = process.communicate(timeout=20)
        assert (process.returncode, errors) == (0, "")


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (("--profile", "nope"), "nope"),
        (("--speed", "0"), "--speed"),
        (("--port", "99999"), "port"),
        (("--scheduling-policy", "random"), "random"),
    ],
)
def test_what_it_cannot_start_with_is_named(options, named):
    ended = subprocess.run(
        command(*options), cwd=ROOT, capture_output=True, text=True, timeout=30, check=False
    )
    assert ended.returncode != 0
    assert named in ended.stderr
    assert "Traceback" not in ended.stderr
