"""`make run`: everything on one machine, nothing to install or to answer.

The first start makes a secret (in `.env`), the database, the demo policy, a login and one key per
tenant, and keeps what it printed in `<data dir>/quickstart.json`, so that the second start shows
the same.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import django
from django.core.management import call_command

from fairlane.children import Children

if TYPE_CHECKING:
    from tenants.services import Actor

ROOT = Path(__file__).resolve().parent.parent
ENGINE_PORTS = (9101, 9102)
DEMO_MODEL = "demo-chat"
DEMO_ENGINE = "http://127.0.0.1:91"
ENV_FILE = ROOT / ".env"
POLICY = ROOT / "fairlane" / "demo" / "policy.yaml"


def main() -> None:
    port = given_port()
    prepare_environment()
    django.setup()
    claim = only_one_here()  # kept open, and with it the lock, until this process ends
    call_command("migrate", verbosity=0)
    engines = engine_ports()
    notes = load_notes() or first_start()
    point_pool_at(engines)
    status = serve(port, engines, lambda: announce(port, notes, engines))
    claim.close()
    sys.exit(status)


def given_port() -> int:
    text = os.environ.get("PORT") or "8000"
    if not text.isdigit() or not 0 < int(text) < 65536:
        sys.exit(f"fairlane: PORT is {text!r}; it takes a port number, 1..65535")
    if not is_free(int(text)):
        sys.exit(f"fairlane: port {text} is in use; choose another: PORT=9999 make run")
    return int(text)


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def prepare_environment() -> None:
    """What settings need, before they are read."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "fairlane.settings")
    known = ENV_FILE.read_text() if ENV_FILE.exists() else ""
    if "SECRET_KEY" not in os.environ and "SECRET_KEY=" not in known:
        # In `.env`, so that `manage.py` in another terminal works on the same data.
        ENV_FILE.touch(mode=0o600)
        ENV_FILE.write_text(f"{known}SECRET_KEY={secrets.token_urlsafe(50)}\n")


def data_dir() -> Path:
    from django.conf import settings

    folder: Path = settings.FAIRLANE_DATA_DIR
    return folder


def only_one_here() -> IO[str]:
    """A second one on the same data would take the demo pool to its own engines and, at its end,
    leave the first with none."""
    claim = (data_dir() / "quickstart.lock").open("w")
    try:
        fcntl.flock(claim, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        sys.exit(
            f"fairlane: another `make run` works on {data_dir()}; stop it, or give this one a "
            "folder of its own: FAIRLANE_DATA_DIR=/tmp/another PORT=9999 make run"
        )
    return claim


def load_notes() -> dict[str, Any] | None:
    if not notes_file().exists():
        return None
    notes: dict[str, Any] = json.loads(notes_file().read_text())
    return notes


def notes_file() -> Path:
    return data_dir() / "quickstart.json"


def first_start() -> dict[str, Any]:
    from tenants import services

    services.apply_document(POLICY.read_text(), actor=actor(), reason="demo policy of make run")
    _, password, token = services.create_user("admin", "admin", actor=actor())
    keys = {
        tenant: services.create_key(tenant, name="demo", actor=actor())[1]
        for tenant in ("acme", "globex", "initech")
    }
    notes = {"username": "admin", "password": password, "token": token, "keys": keys}
    notes_file().touch(mode=0o600)
    notes_file().write_text(json.dumps(notes, indent=1))
    return notes


def actor() -> Actor:
    from tenants.services import Actor

    return Actor(name="make run", source="command")


def engine_ports() -> list[int]:
    """The demo policy's ports, or the next free ones where something else has them."""
    chosen: list[int] = []
    for wanted in ENGINE_PORTS:
        port = wanted
        while not is_free(port) or port in chosen:
            port += 2
        chosen.append(port)
    return chosen


def point_pool_at(ports: list[int]) -> None:
    """Engines that had to move take the demo pool with them; an admin's own edits stay."""
    from tenants.selectors import current_document
    from tenants.services import edit_object

    pool = next((p for p in current_document().pools if p.model == DEMO_MODEL), None)
    if pool is None or not all(e.url.startswith(DEMO_ENGINE) for e in pool.endpoints):
        return
    urls = [f"http://127.0.0.1:{port}/v1" for port in ports]
    if [endpoint.url for endpoint in pool.endpoints] != urls:
        fields = {"endpoints": [{"url": url} for url in urls]}
        edit_object("pool", DEMO_MODEL, fields, actor=actor(), reason="engines on other ports")


def announce(port: int, notes: dict[str, Any], engines: list[int]) -> None:
    base = f"http://127.0.0.1:{port}"
    key = notes["keys"]["acme"]
    moved = "" if port == 8000 else f"PORT={port} "
    keys = "\n".join(f"    {tenant:<10}{secret}" for tenant, secret in notes["keys"].items())
    sys.stdout.write(
        f"""
  Fairlane

  console   {base}/
  login     {notes["username"]} / {notes["password"]}
  admin API {base}/api/docs/    Authorization: Token {notes["token"]}
  engines   two simulated ones, ports {engines[0]} and {engines[1]} (no model runs here)
  API keys
{keys}

  Try it:

  curl -s {base}/v1/chat/completions \\
    -H "Authorization: Bearer {key}" \\
    -H "Content-Type: application/json" \\
    -d '{{"model": "demo-chat", "messages": [{{"role": "user", "content": "Hello"}}]}}'

  Traffic for the dashboards, from another terminal:  {moved}make demo
  Ctrl-C stops all of it.

"""
    )
    sys.stdout.flush()


def serve(port: int, engines: list[int], ready: Callable[[], None]) -> int:
    """Engines beside `serve`; whichever way this ends, they end too."""
    children = Children()
    for engine in engines:
        command = [sys.executable, str(ROOT / "manage.py"), "engine", "--port", str(engine)]
        children.start(f"engine:{engine}", [*command, "--model", DEMO_MODEL, "--profile", "demo"])
    serving = subprocess.Popen(
        [sys.executable, str(ROOT / "manage.py"), "serve", "--port", str(port)]
    )
    for number in (signal.SIGTERM, signal.SIGINT):  # Ctrl-C reaches `serve` by itself too
        signal.signal(number, lambda *_: serving.terminate())
    try:
        if wait_until_ready(port, serving):
            ready()
        status = serving.wait()
    finally:
        children.stop()
    if status < 0:
        name = signal.Signals(-status).name
        sys.stderr.write(f"fairlane: `serve` was ended by {name}, and all of it with it\n")
        return 128 - status
    return status


def wait_until_ready(port: int, serving: subprocess.Popen[bytes]) -> bool:
    while serving.poll() is None:
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=1).close()
        except OSError:
            time.sleep(0.1)
        else:
            return True
    return False


if __name__ == "__main__":
    main()
