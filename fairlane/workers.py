"""Several gateway processes behind one door: `serve --workers N`.

1. The parent opens the door and workers inherit it: while one of them ends or starts anew, callers
   wait at the door for another, and none is refused.
2. Each worker also has a door of its own, a Unix socket. By it the one that is asked for /metrics
   hears what the others count, so that a scrape tells all of them, apart by the label `worker`.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
import threading
from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx
from prometheus_client import Metric, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from fairlane.children import Children

BACKLOG = 2048
ASK_S = 2.0  # a worker that does not tell within it is left out of a scrape


def open_door(host: str, port: int) -> socket.socket:
    """Raises OSError where the address is taken or not ours."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    door = socket.create_server((host, port), family=family, backlog=BACKLOG)
    door.set_inheritable(True)
    return door


def supervise(count: int, door: socket.socket, role: str, children: Children) -> None:
    """Keep `count` workers running until this process is told to stop."""
    stopped = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopped.set())
    with TemporaryDirectory(prefix="fairlane-") as folder:  # a short path: a socket's has a limit
        for worker in range(count):
            command = [sys.executable, sys.argv[0], "serve", "--role", role]
            command += ["--door", str(door.fileno()), "--own-door", f"{folder}/{worker}.sock"]
            children.start(f"gateway worker {worker}", command, fds=(door.fileno(),))
        stopped.wait()
        door.close()  # with the last worker's it is shut
        children.stop()


def doors(inherited: int, own: Path) -> list[socket.socket]:
    """Those of one worker; what an earlier one of the same number left is put away."""
    own.unlink(missing_ok=True)
    mine = socket.socket(socket.AF_UNIX)
    mine.bind(str(own))
    mine.listen()
    os.environ["FAIRLANE_OWN_DOOR"] = str(own)  # `fairlane.asgi` is imported after this
    return [socket.socket(fileno=inherited), mine]


def doors_of_all() -> list[Path]:
    """The own doors of this worker and its siblings; none where this process is no worker."""
    own = os.environ.get("FAIRLANE_OWN_DOOR")
    return sorted(Path(own).parent.glob("*.sock")) if own else []


async def everybodys() -> bytes:
    """/metrics of each worker that answers, as one exposition."""
    told = await asyncio.gather(*(_ask(door) for door in doors_of_all()))
    return generate_latest(_Merged({name: text for name, text in told if text}))


async def _ask(door: Path) -> tuple[str, str]:
    transport = httpx.AsyncHTTPTransport(uds=str(door))
    try:
        async with httpx.AsyncClient(transport=transport, timeout=ASK_S) as client:
            return door.stem, (await client.get("http://worker/metrics")).text
    except httpx.HTTPError:  # it is starting, or has just ended
        return door.stem, ""


class _Merged(Collector):
    """What several processes expose: each sample with the label `worker`, each family once."""

    def __init__(self, texts: dict[str, str]) -> None:
        self._texts = texts

    def collect(self) -> Iterable[Metric]:
        families: dict[str, Metric] = {}
        for worker, text in self._texts.items():
            for family in text_string_to_metric_families(text):
                kept = families.setdefault(
                    family.name, Metric(family.name, family.documentation, family.type)
                )
                for sample in family.samples:
                    labels: dict[str, Any] = {**sample.labels, "worker": worker}
                    kept.samples.append(sample._replace(labels=labels))
        return families.values()
