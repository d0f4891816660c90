"""What the tests of this folder ask, and how they compare what was answered with what was told."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from tests.acceptance.gateway.caller import Answer
from tests.acceptance.gateway.rig import Rig
from tests.engines.process import RealEngine

COMPLETIONS, RESPONSES, MESSAGES = "/v1/completions", "/v1/responses", "/v1/messages"
LONG_TEXT = "Every tenant has a share of the engine, and what one leaves the others may use. " * 12
GENERATED = {"vllm": "vllm:generation_tokens_total", "llamacpp": "llamacpp:tokens_predicted_total"}
USAGE = {"include_usage": True}


def said(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


def body(path: str, text: str, tokens: int, **more: Any) -> dict[str, Any]:
    """A call of that route for exactly so many tokens, whatever random weights would say."""
    if path == COMPLETIONS:
        asked: dict[str, Any] = {"prompt": text, "max_tokens": tokens}
    elif path == RESPONSES:
        asked = {"input": text, "max_output_tokens": tokens}
    else:
        asked = {"messages": said(text), "max_tokens": tokens}
    return {**asked, "ignore_eos": True, "temperature": 0, **more}


def told(answer: Answer) -> tuple[int, int, int]:
    """Prompt, cached and completion tokens, as the caller was told them."""
    if not answer.streamed:
        return counts(answer.json["usage"])
    found: dict[str, Any] = {}
    for event in answer.events:
        inner = event.get("response") or event.get("message") or {}
        found |= event.get("usage") or inner.get("usage") or {}
    return counts(found)


def counts(usage: dict[str, Any]) -> tuple[int, int, int]:
    """Of OpenAI's chat form, of its responses' form, of Anthropic's."""
    if "prompt_tokens" in usage:
        details = usage.get("prompt_tokens_details") or {}
        prompt, cached = usage["prompt_tokens"], details.get("cached_tokens") or 0
        return prompt, cached, usage["completion_tokens"]
    if "input_tokens_details" in usage:
        cached = usage["input_tokens_details"].get("cached_tokens") or 0
        return usage["input_tokens"], cached, usage["output_tokens"]
    cached = usage.get("cache_read_input_tokens") or 0
    made = usage.get("cache_creation_input_tokens") or 0
    return usage["input_tokens"] + cached + made, cached, usage["output_tokens"]


def recorded(row: dict[str, Any]) -> tuple[int, int, int]:
    return row["prompt_tokens"], row["cached_tokens"], row["completion_tokens"]


def generated(engine: RealEngine) -> float:
    """Tokens that the engine counted, whoever asked for them."""
    return engine.metric(GENERATED[engine.kind])


def began(row: dict[str, Any]) -> float:
    """When the first of its answer came."""
    return float(datetime.fromisoformat(row["at"]).timestamp() + row["ttft_ms"] / 1000)


def endpoint(rig: Rig, model: str) -> dict[str, Any]:
    """What the latest sample says of the pool's endpoint."""
    (found,) = rig.live()["pools"].get(model, {}).get("endpoints", {"": {}}).values()
    told: dict[str, Any] = found
    return told


def endpoints(rig: Rig) -> list[dict[str, Any]]:
    """What it says of the engine, of each pool."""
    return [each for pool in rig.live()["pools"].values() for each in pool["endpoints"].values()]
