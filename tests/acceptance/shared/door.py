"""One door before several gateways: nginx with the configuration of `deploy/`, or, where there is
no nginx, callers that go on to the next gateway where nobody opens."""

from __future__ import annotations

import http.client
import itertools
import json
import re
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.acceptance.gateway.caller import CHAT, HELLO, Answer
from tests.acceptance.stack import PATIENCE_S, ROOT, free_port, until

NGINX = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
PATHS = "client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path fastcgi; " + (
    "uwsgi_temp_path uwsgi; scgi_temp_path scgi;"
)


class KeptCaller:
    """Calls one after the other on one connection, as SDKs do; a new one where the last answer
    said that it was the connection's last."""

    def __init__(self, ports: list[int], key: str, first: int = 0) -> None:
        self._ports = itertools.cycle(ports[first % len(ports) :] + ports[: first % len(ports)])
        self._key = key
        self._http: http.client.HTTPConnection | None = None

    def chat(self, **body: Any) -> Answer:
        asked = {"model": "chat", "messages": HELLO, **body}
        head = {"Authorization": f"Bearer {self._key}", "Content-Type": "application/json"}
        if self._http is None or self._http.sock is None:
            self._http = self._connected()
        self._http.request("POST", CHAT, json.dumps(asked), head)
        response = self._http.getresponse()
        headers = {name.lower(): value for name, value in response.getheaders()}
        return Answer(response.status, headers, response.read())

    def _connected(self) -> http.client.HTTPConnection:
        """Whoever opens: one of them is always there."""
        for port in itertools.islice(self._ports, 100):
            made = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
            try:
                made.connect()
                return made
            except ConnectionRefusedError:
                made.close()
        raise AssertionError("nobody opens")

    def close(self) -> None:
        if self._http is not None:
            self._http.close()


@contextmanager
def door(folder: Path, gateways: list[int], console: int) -> Iterator[list[int]]:
    """The ports that callers know."""
    if NGINX is None:
        yield gateways
        return
    home, port = folder / "nginx", free_port()
    home.mkdir()
    (home / "conf").write_text(shipped(gateways, console, port))
    with (home / "log").open("wb") as log:
        command = [NGINX, "-p", str(home), "-c", "conf", "-e", "stderr", "-g", "daemon off;"]
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        until(lambda: process.poll() is not None or opens(port), "nginx opens")
        assert process.poll() is None, (home / "log").read_text()
        yield [port]
    finally:
        process.terminate()
        process.wait(PATIENCE_S)


def shipped(gateways: list[int], console: int, port: int) -> str:
    """deploy/nginx.conf with these addresses, and files that anybody may write."""
    text = (ROOT / "deploy/nginx.conf").read_text()
    for number, gateway in enumerate(gateways, 1):
        text = text.replace(f"gateway-{number}:8000", f"127.0.0.1:{gateway}")
    text = text.replace("console:8000", f"127.0.0.1:{console}")
    text = re.sub(r"listen 8000;", f"listen 127.0.0.1:{port};", text)
    text = text.replace("http {", f"http {{ {PATHS}", 1)
    return f"pid nginx.pid; error_log stderr;\n{text}".replace(
        "worker_processes auto", "worker_processes 1"
    )


def opens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
