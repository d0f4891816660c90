"""Answers of real engines as they came, byte for byte, in `recorded/`: docs/engines.md says which.
What is hand-written elsewhere follows these."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gateway.dialects import DIALECTS
from gateway.upstream.engines import refusal
from gateway.wire.events import MessagesMeter, ResponsesMeter
from gateway.wire.routes import ROUTES, Kind
from gateway.wire.stream import StreamMeter
from gateway.wire.usage import EngineError, Usage, read_error

RECORDED = Path(__file__).parent / "recorded"


def said(name: str) -> bytes:
    return (RECORDED / name).read_bytes()


def pieces(data: bytes, size: int) -> list[bytes]:
    return [data[at : at + size] for at in range(0, len(data), size)]


@pytest.mark.parametrize("size", [1, 7, 4096])
@pytest.mark.parametrize(
    ("name", "prompts", "usage", "whole"),
    [
        ("vllm-chat-two-choices.sse", 1, Usage(6, 0, 6), True),
        ("vllm-completions-two-prompts.sse", 2, Usage(7, 0, 6), True),
    ],
)
def test_a_stream_is_counted_to_its_end_and_shown_without_usage(
    name: str, prompts: int, usage: Usage, whole: bool, size: int
) -> None:
    meter = StreamMeter(DIALECTS["vllm"], asked_usage=False, expected=2, prompts=prompts)
    shown = b"".join(map(meter.feed, pieces(said(name), size)))
    assert meter.finish().complete
    assert (meter.usage, meter.usage_is_final) == (usage, whole)
    assert meter.finish_reasons == {0: "length", 1: "length"}
    assert b'"usage"' not in shown
    frames = [json.loads(line[6:]) for line in shown.splitlines() if line.startswith(b"data: {")]
    assert all(frame["choices"] for frame in frames)


@pytest.mark.parametrize(
    ("name", "prompts", "usage"),
    [
        ("vllm-chat-two-choices.sse", 1, Usage(6, 0, 6)),
        ("vllm-completions-two-prompts.sse", 2, Usage(7, 0, 6)),
    ],
)
def test_a_stream_that_is_cut_before_its_sum_is_counted_by_what_came(
    name: str, prompts: int, usage: Usage
) -> None:
    cut = said(name).split(b'"choices":[],')[0]
    meter = StreamMeter(DIALECTS["vllm"], asked_usage=False, expected=2, prompts=prompts)
    meter.feed(cut)
    meter.finish()
    assert meter.usage == usage


@pytest.mark.parametrize(
    ("meter", "name"),
    [(MessagesMeter, "vllm-messages.sse"), (ResponsesMeter, "vllm-responses.sse")],
)
def test_a_stream_of_events_is_counted_and_passed_as_it_came(meter: Any, name: str) -> None:
    made = meter(DIALECTS["vllm"], asked_usage=False)
    shown = b"".join(map(made.feed, pieces(said(name), 5)))
    ending = made.finish()
    assert shown + ending.rest == said(name)
    assert ending.complete
    assert (made.usage, made.usage_is_final) == (Usage(6, 0, 3), True)


@pytest.mark.parametrize(
    ("kind", "usage"),
    [
        ("chat", Usage(6, 0, 4)),
        ("responses", Usage(6, 0, 3)),
        ("messages", Usage(6, 0, 3)),
        ("embeddings", Usage(2, 0, 0)),
        ("rerank", Usage(12, 0, 0)),
        ("score", Usage(12, 0, 0)),
    ],
)
def test_a_whole_answer_is_counted(kind: Kind, usage: Usage) -> None:
    told = ROUTES[kind].report(said(f"vllm-{kind}.json"), DIALECTS["vllm"])
    assert (told.usage, told.exact) == (usage, True)


def test_errors_are_the_callers_where_they_are() -> None:
    errors = [error for body in json.loads(said("vllm-errors.json")) if (error := read_error(body))]
    codes = [refused(error) for error in errors]
    assert codes == [
        "invalid_request",
        "invalid_request",
        "engine_error",
        "context_length_exceeded",
    ]


def refused(error: EngineError) -> str:
    return str(refusal(int(error.code), error, None).outcome.value)
