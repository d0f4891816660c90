"""`make run` as a newcomer meets it: what it prints works, and Ctrl-C leaves nothing behind."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import psutil
import pytest

from tests.acceptance.stack import PATIENCE_S, ROOT, alive, free_port, until


def test_what_it_prints_works_and_ctrl_c_ends_all_of_it(tmp_path: Path) -> None:
    port = free_port()
    own = {"PORT": str(port), "FAIRLANE_DATA_DIR": str(tmp_path), "SECRET_KEY": "only-for-tests"}
    log = tmp_path / "printed"
    with log.open("wb") as printed:
        running = subprocess.Popen(
            [sys.executable, "-m", "fairlane.quickstart"],
            cwd=ROOT,
            env={**os.environ, **own},
            stdout=printed,
            stderr=printed,
            start_new_session=True,  # its own group, as a terminal gives it
        )
    try:
        until(lambda: "Ctrl-C stops" in log.read_text(), f"it is ready: {log}")
        text = log.read_text()
        secret = re.search(r"acme\s+(fl_\S+)", text)
        login = re.search(r"login\s+(\S+) / (\S+)", text)
        token = re.search(r"Token (\S+)", text)
        assert secret
        assert login
        assert token
        base = f"http://127.0.0.1:{port}"
        answer = httpx.post(
            f"{base}/v1/chat/completions",
            headers={"Authorization": f"Bearer {secret[1]}"},
            json={"model": "demo-chat", "messages": [{"role": "user", "content": "Hello"}]},
            timeout=PATIENCE_S,
        )
        assert answer.status_code == 200, answer.text
        headers = {"Authorization": f"Token {token[1]}"}
        live = httpx.get(f"{base}/api/v1/live/", headers=headers, timeout=PATIENCE_S)
        assert live.status_code == 200, live.text
        second = subprocess.run(
            [sys.executable, "-m", "fairlane.quickstart"],
            cwd=ROOT,
            env={**os.environ, **own, "PORT": str(free_port())},
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        assert second.returncode == 1
        assert f"another `make run` works on {tmp_path}" in second.stderr
        whole = psutil.Process(running.pid)
        until(lambda: len(whole.children(recursive=True)) >= 4, "two engines, serve, worker")
        family = whole.children(recursive=True)
        os.killpg(running.pid, signal.SIGINT)
        assert running.wait(PATIENCE_S) == 0
        until(lambda: not any(map(alive, family)), "every process has ended")
    finally:
        if running.poll() is None:
            os.killpg(running.pid, signal.SIGKILL)


@pytest.mark.parametrize("port", ["many", "0", "70000"])
def test_a_port_that_is_none_is_refused_in_one_line(port: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "fairlane.quickstart"],
        cwd=ROOT,
        env={**os.environ, "PORT": port},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "PORT" in done.stderr
    assert port in done.stderr
