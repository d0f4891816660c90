"""A simulation ordered over HTTP is run by the worker that `serve` starts."""

from __future__ import annotations

import json
from typing import Any

import httpx

from tests.acceptance.stack import PATIENCE_S, Stack, until


def test_a_simulation_is_ordered_run_and_read(served: Stack) -> None:
    made = served.manage("users", "create", "--username", "olga", "--role", "operator", "--json")
    headers = {"Authorization": f"Token {json.loads(made)['token']}"}
    trace = "arrival,tenant,prompt_tokens,output_tokens\n0,acme,100,10\n1,globex,100,10\n"
    with httpx.Client(base_url=served.url, headers=headers, timeout=PATIENCE_S) as client:
        order = client.post("/api/v1/simulations/", json={"trace": trace})
        assert order.status_code == 202, order.text

        def told() -> dict[str, Any]:
            found: dict[str, Any] = client.get(order.headers["location"]).json()
            return found

        until(lambda: told()["state"] in ("done", "failed"), "the worker has run it")
        assert told()["fault"] == ""
        assert told()["result"]["results"][0]["ends"] == {"served": 2}
