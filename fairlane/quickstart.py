"""`make run`: everything on one machine, nothing to install or to answer.

The first start makes a secret (in `.env`), the database, the demo policy, a login and one key per
tenant, and keeps what it printed in `<data dir>/quickstart.json`, so that the second start shows
the same.
"""

from __future__ import annotations

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
from typing import Any

import yaml

from fairlane.children import Children

ROOT = Path(__file__).resolve().parent.parent
DATA_DIR = Path(os.environ.get("FAIRLANE_DATA_DIR") or ROOT / "var").resolve()
ENGINE_PORTS = (9101, 9102)
ENV_FILE = ROOT / ".env"
POLICY = ROOT / "fairlane" / "demo" / "policy.yaml"


def main() -> None:
    port = given_port()
    prepare_environment()
    manage("migrate", "--verbosity", "0")
    engines = engine_ports()
    notes = load_notes() or first_start()
    point_pool_at(engines)
    serve(port, engines, lambda: announce(port, notes, engines))


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
    DATA_DIR.mkdir(parents=True, exist_ok=True)
    os.environ["FAIRLANE_DATA_DIR"] = str(DATA_DIR)
    known = ENV_FILE.read_text() if ENV_FILE.exists() else ""
    if "SECRET_KEY" not in os.environ and "SECRET_KEY=" not in known:
        # In `.env`, so that `manage.py` in another terminal works on the same data.
        ENV_FILE.touch(mode=0o600)
        ENV_FILE.write_text(f"{known}SECRET_KEY={secrets.token_urlsafe(50)}\n")


def manage(*arguments: str, give: str | None = None) -> str:
    """Run a management command and return what it printed."""
    done = subprocess.run(
        [sys.executable, str(ROOT / "manage.py"), *arguments],
        input=give,
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    if done.returncode:
        sys.exit(f"fairlane: `manage.py {' '.join(arguments)}` ended with {done.returncode}")
    return done.stdout


def load_notes() -> dict[str, Any] | None:
    file = DATA_DIR / "quickstart.json"
    if not file.exists():
        return None
    notes: dict[str, Any] = json.loads(file.read_text())
    return notes


def first_start() -> dict[str, Any]:
    manage("policy", "apply", str(POLICY), "--reason", "demo policy of make run")
    user = json.loads(manage("users", "create", "--username", "admin", "--role", "admin", "--json"))
    keys = {}
    for tenant in ("acme", "globex", "initech"):
        made = manage("keys", "create", "--tenant", tenant, "--name", "demo", "--json")
        keys[tenant] = json.loads(made)["key"]
    notes = {
        "username": "admin",
        "password": user["password"],
        "token": user["token"],
        "keys": keys,
    }
    file = DATA_DIR / "quickstart.json"
    file.touch(mode=0o600)
    file.write_text(json.dumps(notes, indent=1))
    return notes


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
    document = yaml.safe_load(manage("policy", "export"))
    pool = next((p for p in document["pools"] if p["model"] == "demo-chat"), None)
    if pool is None or not all("127.0.0.1:91" in e["url"] for e in pool["endpoints"]):
        return
    endpoints = [{"url": f"http://127.0.0.1:{port}/v1"} for port in ports]
    if [e["url"] for e in pool["endpoints"]] != [e["url"] for e in endpoints]:
        pool["endpoints"] = endpoints
        reason = "demo engines on other ports"
        manage("policy", "apply", "-", "--reason", reason, give=yaml.safe_dump(document))


def announce(port: int, notes: dict[str, Any], engines: list[int]) -> None:
    base = f"http://127.0.0.1:{port}"
    key = notes["keys"]["acme"]
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

  Traffic for the dashboards:  .venv/bin/python manage.py demo --url {base}
  Ctrl-C stops all of it.

"""
    )
    sys.stdout.flush()


def serve(port: int, engines: list[int], ready: Callable[[], None]) -> None:
    """Engines beside `serve`; whichever way this ends, they end too."""
    children = Children()
    for engine in engines:
        command = [sys.executable, str(ROOT / "manage.py"), "engine", "--port", str(engine)]
        children.start(f"engine:{engine}", [*command, "--model", "demo-chat", "--profile", "demo"])
    serving = subprocess.Popen(
        [sys.executable, str(ROOT / "manage.py"), "serve", "--port", str(port)]
    )
    signal.signal(signal.SIGTERM, lambda *_: serving.terminate())
    signal.signal(signal.SIGINT, lambda *_: None)  # Ctrl-C reaches `serve` too, which drains
    try:
        if wait_until_ready(port, serving):
            ready()
        status = serving.wait()
    finally:
        children.stop()
    sys.exit(status)


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
