"""The ways to one scripted engine: straight, through other software, and through Fairlane.

What is not installed on this machine is left out, with a line that says so.
"""

from __future__ import annotations

import os
import platform
import shutil
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from tests.acceptance.stack import ROOT, Stack, answers, free_port, until
from tests.bench import upstream
from tests.bench.gateway.asked import policy
from tests.bench.upstream import stop

DIRECT, NGINX, BARE = "straight", "nginx", "bare pass-through"
LITELLM, FAIRLANE = "LiteLLM", "Fairlane"
LITELLM_VENV = Path.home() / f".cache/fairlane-bench/litellm-{platform.python_version()}"
LITELLM_KEY = "sk-bench"
NGINX_CONF = """
worker_processes 1; pid nginx.pid; error_log stderr error;
events {{ worker_connections 4096; }}
http {{
  access_log off; keepalive_requests 1000000;
  client_body_temp_path body; proxy_temp_path proxy;
  upstream engine {{ server 127.0.0.1:{engine}; keepalive 256; keepalive_requests 1000000; }}
  server {{
    listen 127.0.0.1:{port} backlog=1024;
    location / {{
      proxy_pass http://engine; proxy_http_version 1.1; proxy_set_header Connection "";
      proxy_buffering off;
    }}
  }}
}}
"""
LITELLM_CONF = """
model_list:
  - model_name: demo-chat
    litellm_params:
      {{model: openai/demo-chat, api_base: "http://127.0.0.1:{engine}/v1", api_key: none}}
general_settings: {{master_key: {key}}}
"""


@dataclass
class Way:
    """`slow`: so many times fewer requests are asked of it, or its figures would take minutes."""

    name: str
    port: int
    process: psutil.Process | None = None
    key: str = ""
    slow: int = 1
    served: Stack | None = None
    figures: dict[str, list[float]] = field(default_factory=dict)

    @property
    def processes(self) -> list[psutil.Process]:
        """Of the software in the middle. Fairlane's background worker is not on a call's way."""
        if self.process is None:
            return []
        return [self.process, *([] if self.served else self.process.children(recursive=True))]

    def cpu_s(self) -> float:
        return sum(spent.user + spent.system for p in self.processes for spent in [p.cpu_times()])

    def rss(self) -> int:
        return sum(process.memory_info().rss for process in self.processes)

    def run_on(self, cores: set[int]) -> None:
        for process in self.processes:
            for thread in process.threads():
                os.sched_setaffinity(thread.id, cores)

    def note(self, name: str, figure: float) -> None:
        self.figures.setdefault(name, []).append(figure)

    def median(self, name: str) -> float | None:
        found = self.figures.get(name)
        return statistics.median(found) if found else None


Start = Callable[[Path, int, ExitStack], Way]


def direct(folder: Path, engine: int, stopping: ExitStack) -> Way:
    return Way(DIRECT, engine)


def bare(folder: Path, engine: int, stopping: ExitStack) -> Way:
    """uvicorn and the gateway's own EngineClient, no policy."""
    way = next(iter(upstream.WAYS))
    process, port = upstream.start("--passage", way, "--engine-port", str(engine))
    stopping.callback(stop, process)
    return Way(BARE, port, psutil.Process(process.pid))


def nginx(folder: Path, engine: int, stopping: ExitStack) -> Way:
    program = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
    if program is None:
        raise FileNotFoundError("nginx is not installed (apt-get install nginx-light)")
    home, port = folder / "nginx", free_port()
    home.mkdir()
    (home / "conf").write_text(NGINX_CONF.format(engine=engine, port=port))
    command = [program, "-p", str(home), "-c", "conf", "-g", "daemon off; user root;"]
    return other(NGINX, command, port, folder, stopping)


def litellm(folder: Path, engine: int, stopping: ExitStack) -> Way:
    """With a master key and without a database: it knows no tenants then, and counts nothing."""
    conf, port = folder / "litellm.yaml", free_port()
    conf.write_text(LITELLM_CONF.format(engine=engine, key=LITELLM_KEY))
    command = [str(litellm_program()), "--config", str(conf), "--host", "127.0.0.1"]
    way = other(LITELLM, [*command, "--port", str(port)], port, folder, stopping)
    way.key, way.slow = LITELLM_KEY, 20
    return way


def litellm_program() -> Path:
    """In a virtual environment of its own, which is made when it is not there."""
    program = LITELLM_VENV / "bin/litellm"
    if not program.exists():
        subprocess.run([sys.executable, "-m", "venv", str(LITELLM_VENV)], check=True)
        pip = [str(LITELLM_VENV / "bin/pip"), "install", "--quiet", "litellm[proxy]"]
        if subprocess.run(pip, check=False, capture_output=True).returncode:
            raise FileNotFoundError("litellm[proxy] could not be installed from the registry")
    return program


def other(name: str, command: list[str], port: int, folder: Path, stopping: ExitStack) -> Way:
    """Another program, once it lets the engine's answer through."""
    offline = {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_TELEMETRY": "False"}
    with (folder / f"{name}.log").open("wb") as log:
        process = subprocess.Popen(command, env=os.environ | offline, stdout=log, stderr=log)
    stopping.callback(end, process)
    until(
        lambda: (
            process.poll() is not None or answers(f"http://127.0.0.1:{port}/v1/models", LITELLM_KEY)
        ),
        f"{name} answers; its log is in {folder}",
        180,
    )
    if process.poll() is not None:
        raise FileNotFoundError(f"{name} did not start: {tail(folder / f'{name}.log')}")
    return Way(name, port, psutil.Process(process.pid))


def tail(log: Path) -> str:
    return log.read_text(errors="replace")[-300:]


def end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def fairlane(folder: Path, engine: int, stopping: ExitStack) -> Way:
    """Key check, admission, budgets, fair queue, metering, journal and ledger into SQLite; the
    console is served by the same process."""
    return serve(FAIRLANE, Stack(folder), engine, stopping)


def serve(name: str, served: Stack, engine: int, stopping: ExitStack) -> Way:
    served.manage("migrate", "--verbosity", "0")
    served.apply(policy(f"http://127.0.0.1:{engine}/v1"))
    key = served.key("globex", "--application", "search")
    served.start()
    stopping.callback(served.stop)
    assert served.serving is not None
    return Way(name, served.port, psutil.Process(served.serving.pid), key, served=served)


WAYS: dict[str, Start] = {
    DIRECT: direct,
    NGINX: nginx,
    BARE: bare,
    LITELLM: litellm,
    FAIRLANE: fairlane,
}


@contextmanager
def fairlanes(folder: Path, settings: Mapping[str, dict[str, str]]) -> Iterator[list[Way]]:
    """Fairlane several times, by the settings that they differ in."""
    with ExitStack() as stopping:
        engine = scripted(stopping)
        found = []
        for number, (name, own) in enumerate(settings.items()):
            home = folder / str(number)
            home.mkdir()
            found.append(serve(name, Stack(home, settings=own), engine, stopping))
        yield found


def scripted(stopping: ExitStack) -> int:
    """An engine; its port."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.bench.scripted"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    stopping.callback(stop, process)
    assert process.stdout is not None
    return int(process.stdout.readline())


@contextmanager
def ways(folder: Path, without: set[str]) -> Iterator[list[Way]]:
    with ExitStack() as stopping:
        engine = scripted(stopping)
        found = []
        for name, begin in WAYS.items():
            if name not in without:
                try:
                    found.append(begin(folder, engine, stopping))
                except (OSError, subprocess.CalledProcessError) as error:
                    print(f"without {name}: {error}", flush=True)
        yield found
