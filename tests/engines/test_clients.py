"""Clients that only changed their base URL, with a real engine behind it."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import anthropic
import openai

from tests.acceptance.gateway.rig import Rig
from tests.acceptance.stack import PATIENCE_S
from tests.engines.asking import said
from tests.engines.process import RealEngine

ASKED: Any = said("Say something.")


def test_openais_package(served: Rig, engine: RealEngine) -> None:
    key = served.tenant().key
    with openai.OpenAI(base_url=f"{served.stack.url}/v1", api_key=key) as client:
        whole = client.chat.completions.create(model="real", messages=ASKED, max_tokens=5)
        assert whole.usage is not None
        assert whole.usage.completion_tokens <= 5
        frames = list(
            client.chat.completions.create(
                model="real",
                messages=ASKED,
                max_tokens=5,
                stream=True,
                stream_options={"include_usage": True},
            )
        )
        assert frames[-1].usage is not None
        assert frames[-1].choices == []
        asked: Any = {"model": "real", "input": "Say something.", "max_output_tokens": 5}
        response = client.responses.create(**asked)
        assert response.usage is not None
        assert response.usage.output_tokens <= 5
        # Not `responses.stream`: it puts events together by numbers that llama.cpp leaves out.
        kinds = [event.type for event in client.responses.create(**asked, stream=True)]
        assert kinds[-1] in ("response.completed", "response.incomplete")
        assert [model.id for model in client.models.list()] != []


def test_anthropics_package(served: Rig, engine: RealEngine) -> None:
    key = served.tenant().key
    with anthropic.Anthropic(base_url=served.stack.url, api_key=key) as client:
        whole = client.messages.create(model="real", messages=ASKED, max_tokens=5)
        assert whole.usage.output_tokens <= 5
        with client.messages.stream(model="real", messages=ASKED, max_tokens=5) as stream:
            last = stream.get_final_message()
        assert last.stop_reason in ("max_tokens", "end_turn")


def test_curl(served: Rig, engine: RealEngine) -> None:
    asked = json.dumps({"model": "real", "messages": ASKED, "max_tokens": 5})
    done = subprocess.run(
        [
            *("curl", "--silent", "--show-error", f"{served.stack.url}/v1/chat/completions"),
            *("-H", f"Authorization: Bearer {served.tenant().key}", "-d", asked),
        ],
        capture_output=True,
        check=True,
        timeout=PATIENCE_S,
    )
    assert json.loads(done.stdout)["usage"]["completion_tokens"] <= 5
