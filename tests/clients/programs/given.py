"""What a program is told of the product that it calls, and how one of its checks is run:
`python PROGRAM CHECK`. Keys are of tenants with limits of their own (tests/clients/rig.py)."""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import sys
from typing import Any

URL = os.environ["FAIRLANE_URL"]
KEYS: dict[str, str] = json.loads(os.environ["FAIRLANE_KEYS"])
MODEL = "chat"
HELLO: Any = [{"role": "user", "content": "Hello there"}]
LONG: Any = [{"role": "user", "content": "word " * 300}]
ENDLESS: dict[str, Any] = {"extra_body": {"ignore_eos": True}}
ENDLESS_TOKENS = 30_000  # half a minute and more of the engine's
PARAMETERS = {"type": "object", "properties": {"town": {"type": "string"}}}


def raised(kind: type[Exception], call: Any, *given: Any, **fields: Any) -> Any:
    try:
        call(*given, **fields)
    except kind as error:
        return error
    raise AssertionError(f"{kind.__name__} was not raised")


def run(checks: dict[str, Any]) -> None:
    told = checks[sys.argv[1]]()
    if inspect.iscoroutine(told):
        asyncio.run(told)
