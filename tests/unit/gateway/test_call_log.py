"""The line that a call leaves in the log: for which calls, and what stands in it."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from structlog.testing import capture_logs

from tests.unit.gateway.cast import SECRET
from tests.unit.gateway.world import World, full_stream, streamed

REFUSED = httpx.Response(400, json={"error": {"message": "MARKED is no good", "type": "x"}})


async def logged(wanted: str, *replies: Any, **call: Any) -> tuple[World, list[dict[str, Any]]]:
    world = World()
    world.calls.logged = wanted
    with capture_logs() as lines:
        await world.ask(*replies, **call)
    return world, [dict(line) for line in lines]


@pytest.mark.parametrize(
    ("wanted", "told"),
    [("none", [False, False, False]), ("failed", [False, False, True]), ("all", [True] * 3)],
)
async def test_the_setting_says_which_calls_are_told(wanted: str, told: list[bool]) -> None:
    served = await logged(wanted)
    malformed = await logged(wanted, body=b"[]")
    failed = await logged(wanted, httpx.Response(500), httpx.Response(500))
    assert [bool(lines) for _, lines in (served, malformed, failed)] == told


async def test_a_line_has_ids_names_codes_and_durations() -> None:
    world, [line] = await logged("all", streamed(*full_stream()), stream=True)
    assert line["request_id"] == world.record.request_id
    assert (line["tenant"], line["model"], line["lane"]) == ("alice", "chat", "standard")
    assert (line["outcome"], line["status"], line["log_level"]) == ("ok", 200, "info")
    assert (line["prompt_tokens"], line["completion_tokens"]) == (12, 2)
    assert 0 <= line["queue_ms"] <= line["e2e_ms"]
    assert 0 < line["ttft_ms"] <= line["e2e_ms"]


async def test_a_failed_call_is_a_warning_with_its_code() -> None:
    _, [line] = await logged("failed", httpx.ReadTimeout("MARKED"))
    assert (line["outcome"], line["status"], line["log_level"]) == (
        "engine_timeout",
        504,
        "warning",
    )
    assert "MARKED" not in str(line)


@pytest.mark.parametrize(
    "call",
    [
        {"key": "MARKED"},
        {"model": "MARKED"},
        {"headers": {"x-fairlane-lane": "MARKED"}},
        {"messages": [{"role": "user", "content": "MARKED"}], "user": "MARKED"},
        {"body": b'{"model": "MARKED'},
    ],
    ids=["key", "model", "lane", "prompt", "broken"],
)
async def test_no_line_has_a_word_of_a_caller_or_an_engine(call: dict[str, Any]) -> None:
    _, [line] = await logged("all", REFUSED, **call)
    assert "MARKED" not in str(line)
    assert SECRET["alice"].decode() not in str(line)
