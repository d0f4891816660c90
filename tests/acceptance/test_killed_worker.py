"""A task that a worker had begun when it was killed is run by another."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import valkey
from celery import Celery

from tests.acceptance.stack import ROOT, Stack, until
from tests.acceptance.test_redis_broker import redis_url

__all__ = ["redis_url"]
START_S = 400.0  # a worker starts slowly where many do


@contextmanager
def worker(served: Stack) -> Iterator[subprocess.Popen[bytes]]:
    command = (sys.executable, "-m", "celery", "--app", "tests.acceptance.brief_broker", "worker")
    log = (served.folder / "worker.log").open("ab")
    made = subprocess.Popen(
        [*command, "--pool", "threads", "--concurrency", "2"],
        cwd=ROOT,
        env=served.env,
        stdout=log,
        stderr=log,
    )
    log.close()
    try:
        yield made
    finally:
        made.kill()
        made.wait()


def test_it_is_run_again(tmp_path: Path, redis_url: str) -> None:
    served = Stack(tmp_path, redis_url=redis_url)
    served.manage("migrate", "--verbosity", "0")
    with (
        closing(sqlite3.connect(tmp_path / "fairlane.sqlite3", isolation_level=None)) as database,
        closing(valkey.Valkey.from_url(redis_url)) as broker,
        closing(Celery(broker=redis_url)) as sender,
    ):
        database.execute(
            "INSERT INTO metering_gatewaysample (gateway, at, state) "
            "VALUES ('old', '2020-01-01', '{}')"
        )

        def samples() -> int:
            (found,) = database.execute("SELECT count(*) FROM metering_gatewaysample").fetchone()
            return int(found)

        database.execute("BEGIN IMMEDIATE")  # the task waits for its turn to write
        sender.send_task("metering.tasks.purge_samples")
        with worker(served) as first:
            until(lambda: broker.hlen("unacked") == 1, "a worker has taken the task", START_S)
            os.kill(first.pid, signal.SIGKILL)
            first.wait()
        database.execute("ROLLBACK")
        assert samples() == 1
        with worker(served):
            until(lambda: samples() == 0, "another worker has run it", START_S)
            until(lambda: broker.hlen("unacked") == 0, "and says that it is done")
