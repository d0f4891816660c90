"""`serve`: web, gateway and background worker as one process group with one Ctrl-C."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
import threading
from argparse import SUPPRESS, ArgumentParser
from pathlib import Path
from typing import Any

import uvicorn
from django.conf import settings
from django.core.management.base import BaseCommand, CommandError
from django.db import connection
from django.db.migrations.executor import MigrationExecutor

from fairlane import heap, workers
from fairlane.children import Children
from fairlane.connections import CountedHttp, bound

ROLES = ("all", "gateway", "console")
LOOK_S = 0.1  # during a start: for a signal to stop
ON_ITS_WAY_S = 0.2
AFTER_END_S = 5.0
AFTER_DRAIN_S = 10.0  # to write the last records, and for the background worker


class Command(BaseCommand):
    help = "Serve the gateway and the console, with the background worker beside them."
    requires_migrations_checks = False

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--host",
            default="127.0.0.1",
            help="the address to listen on: 127.0.0.1 unless told, 0.0.0.0 for all",
        )
        parser.add_argument("--port", type=int, default=8000, help="8000 unless told")
        parser.add_argument("--workers", type=int, default=1, help="more than 1 needs REDIS_URL")
        parser.add_argument(
            "--role",
            choices=ROLES,
            default="all",
            help="gateway: /v1 alone; console: pages, admin API, background worker and its beat",
        )
        parser.add_argument("--door", type=int, help=SUPPRESS)  # a worker's, from its parent
        parser.add_argument("--own-door", type=Path, help=SUPPRESS)

    def handle(self, *args: Any, **options: Any) -> None:
        heap.share()
        host, port, count, role = (options[n] for n in ("host", "port", "workers", "role"))
        check_workers(count)
        check_port(port)
        check_migrations()
        os.environ["FAIRLANE_ROLE"] = role
        if options["door"] is not None:
            serve(host, port, workers.doors(options["door"], options["own_door"]))
            end_in(AFTER_END_S)
            return
        door = open_door(host, port)  # whoever has it already is told of before anything starts
        children = Children(settings.FAIRLANE_DRAIN_SECONDS + AFTER_DRAIN_S)
        if role in ("all", "console"):
            children.start("worker", worker_command())
        try:
            if count == 1:
                door.close()  # nobody waits at it while the gateway is not ready
                serve(host, port)
            else:
                workers.supervise(count, door, role, children)
        finally:
            children.stop()
        end_in(AFTER_END_S)


def end_in(seconds: float) -> None:
    """All is done; a thread that waits for a database which hangs must not keep the process."""
    end = threading.Timer(seconds, os._exit, [0])
    end.daemon = True
    end.start()


def check_workers(count: int) -> None:
    if count < 1:
        raise CommandError(f"--workers is {count}; it takes 1 or more")
    if count > 1 and not settings.REDIS_URL:
        raise CommandError(
            f"--workers is {count}: more than one gateway process needs a shared scheduler. "
            "Set REDIS_URL to a Redis server, or leave --workers at 1."
        )


def check_port(port: int) -> None:
    """A larger one would be cut to 16 bits, and the server listen elsewhere."""
    if not 0 <= port <= 65535:
        raise CommandError(f"--port is {port}; it takes 0 (any free one) to 65535")


def open_door(host: str, port: int) -> socket.socket:
    try:
        return workers.open_door(host, port)
    except OSError as error:
        raise CommandError(f"could not start on {host}:{port}: {error.strerror}") from None


def check_migrations() -> None:
    executor = MigrationExecutor(connection)
    pending = executor.migration_plan(executor.loader.graph.leaf_nodes())
    connection.close()
    if pending:
        names = ", ".join(f"{m.app_label}.{m.name}" for m, _ in pending[:3])
        raise CommandError(
            f"the database lacks {len(pending)} migration(s) ({names}, …). "
            "Run: python manage.py migrate"
        )


def worker_command() -> list[str]:
    """Celery with its beat inside: one process for all background work."""
    schedule = settings.FAIRLANE_DATA_DIR / "celerybeat-schedule"
    return [
        *(sys.executable, "-m", "celery", "--app", "fairlane", "--quiet", "worker"),
        *("--beat", "--schedule", str(schedule), "--pool", "threads", "--concurrency", "2"),
        *("--loglevel", "WARNING", "--without-gossip", "--without-mingle", "--without-heartbeat"),
    ]


class DrainingServer(uvicorn.Server):
    """Tells the gateway that it is to stop before connections are waited for, not after.

    A listener that closes resets whoever the kernel has let in but nobody has taken on yet: those
    are taken on. A connection whose request is still on its way counts as idle for uvicorn, which
    closes those at once: it gets a moment, once nobody new is let in. What is kept open between
    two calls: connections.py.
    """

    failed = False  # to start

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """uvicorn looks for a signal only once it has started; a start may wait for a server that
        is away, and must end when told to."""
        starting = asyncio.ensure_future(self._begin(sockets))
        while not self.should_exit and not starting.done():
            await asyncio.wait([starting], timeout=LOOK_S)
        if starting.done() or self.lifespan.startup_event.is_set():  # it is about to be done
            await starting
        else:
            starting.cancel()

    async def _begin(self, sockets: list[socket.socket] | None) -> None:
        """uvicorn leaves the process where that fails; within a task that is told as a fault, with
        its traceback, after the line that says what is wrong."""
        try:
            await super().startup(sockets)
        except SystemExit:
            self.failed = self.should_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        from fairlane.asgi import application

        application.drain()
        CountedHttp.stops = True
        await self._close_doors()
        await asyncio.sleep(ON_ITS_WAY_S)
        await super().shutdown(sockets)

    async def _close_doors(self) -> None:
        doors = [socket.socket(fileno=os.dup(s.fileno())) for e in self.servers for s in e.sockets]
        for server in self.servers:
            server.close()
        loop = asyncio.get_running_loop()
        for caller in [each for door in doors for each in those_at(door)]:
            await loop.connect_accepted_socket(self._protocol, caller)

    def _protocol(self) -> asyncio.Protocol:
        make: Any = self.config.http_protocol_class
        made: asyncio.Protocol = make(
            config=self.config, server_state=self.server_state, app_state=self.lifespan.state
        )
        return made


def those_at(door: socket.socket) -> list[socket.socket]:
    """Accept everybody who waits at a listening socket, and close it."""
    found = []
    with door:
        door.setblocking(False)
        while True:
            try:
                found.append(door.accept()[0])
            except ConnectionAbortedError:  # it has left again
                continue
            except BlockingIOError:
                return found


def serve(host: str, port: int, doors: list[socket.socket] | None = None) -> None:
    """Until told to stop. `doors`: sockets to listen at, in the place of one of its own."""
    config = uvicorn.Config(
        "fairlane.asgi:application",
        host=host,
        port=port,
        loop="uvloop",
        http=CountedHttp,
        lifespan="on",
        access_log=False,
        log_config=None,
        server_header=False,
        date_header=False,
        proxy_headers=False,  # nothing that a caller sends says who it is
        timeout_keep_alive=settings.FAIRLANE_KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=settings.FAIRLANE_DRAIN_SECONDS,
    )
    # uvicorn drains on these signals and then raises them again; the second time they must not
    # kill the process before its children are stopped.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)
    CountedHttp.most = bound(settings.FAIRLANE_MAX_CONNECTIONS)
    CountedHttp.lets_rest = bool(settings.REDIS_URL)  # there may be another gateway
    server = DrainingServer(config)
    server.run(doors)
    if server.failed or not (server.started or server.should_exit):
        raise CommandError(f"could not start on {host}:{port}; the lines above say why")
