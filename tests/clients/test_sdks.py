"""Packages that applications are written with: each check of each program of `programs/`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.gateway.rig import Rig
from tests.clients.install import HOME, program
from tests.clients.rig import Cast, cast

PROGRAMS = Path(__file__).parent / "programs"
PACKAGE = HOME / "node" / "node_modules" / "openai" / "index.mjs"
SDKS: dict[str, tuple[str, str]] = {  # its folder, and its program
    "openai (Python)": ("openai", "openai_python.py"),
    "openai (Node)": ("node", "openai_node.mjs"),
    "anthropic": ("anthropic", "anthropic_python.py"),
    "langchain-openai": ("langchain", "langchain_openai_.py"),
}
CHECK = re.compile(r"^ *(?:async )?(?:def )?(check_\w+)\(", re.MULTILINE)


def checks() -> Iterator[Any]:
    for sdk, (_, name) in SDKS.items():
        for check in CHECK.findall((PROGRAMS / name).read_text()):
            yield pytest.param(sdk, sdk, check, id=f"{sdk}-{check.removeprefix('check_')}")


@pytest.fixture(scope="module")
def caller(product: Rig, request: pytest.FixtureRequest) -> Cast:
    return cast(product, SDKS[request.param][0])


@pytest.mark.parametrize(("caller", "sdk", "check"), [*checks()], indirect=["caller"])
def test_it_works_unchanged(caller: Cast, sdk: str, check: str) -> None:
    path = str(PROGRAMS / SDKS[sdk][1])
    if caller.client == "node":
        caller.run("node", path, check, FAIRLANE_OPENAI=str(PACKAGE))
    else:
        caller.run(program(caller.client), path, check)
    caller.settled()
