"""Installs clients that only change their base URL, each in a folder of its own, away from the
checkout.

`python -m tests.clients.install [NAME …]`, all unless told; what is there already is left alone.
Clients are tools of third parties and never dependencies: nothing of them is in `.venv`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

HOME = Path(
    os.environ.get("FAIRLANE_CLIENTS")
    or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fairlane-clients"
)
CPU_TORCH = "torch==2.13.0+cpu"  # where it is to be had; PyPI's is for CUDA and takes 6 GB
PACKAGES: dict[str, tuple[str, ...]] = {
    "openai": ("openai==3.57.0",),
    "anthropic": ("anthropic==2.14.0",),
    "node": ("openai@6.49.0",),
    "langchain": ("langchain-openai==1.7.4",),
    "llm": ("llm==0.36",),
    "aiperf": ("aiperf==0.13.0",),
    "guidellm": ("guidellm==0.8.1",),
}


def program(client: str, name: str = "python") -> str:
    """The path of a program that came with a client."""
    return str(HOME / client / "bin" / name)


def is_there(client: str) -> bool:
    done = HOME / f"{client}.done"
    return done.exists() and done.read_text() == " ".join(PACKAGES[client])


def main(wanted: Sequence[str]) -> None:
    for client in wanted or list(PACKAGES):
        if is_there(client):
            continue
        print(f"{client}: installing {', '.join(PACKAGES[client])} into {HOME}", flush=True)
        (HOME / client).mkdir(parents=True, exist_ok=True)
        if client == "node":
            run("npm", "install", "--silent", "--prefix", str(HOME / client), *PACKAGES[client])
        else:
            install_python(client)
        (HOME / f"{client}.done").write_text(" ".join(PACKAGES[client]))


def install_python(client: str) -> None:
    run(sys.executable, "-m", "venv", "--clear", str(HOME / client))
    pip = (program(client), "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    if client == "guidellm":
        subprocess.run([*pip, CPU_TORCH], check=False)
    run(*pip, *PACKAGES[client])


def run(*command: str) -> None:
    subprocess.run(command, check=True)


if __name__ == "__main__":
    main(sys.argv[1:])
