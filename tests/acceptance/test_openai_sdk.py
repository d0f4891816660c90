"""An application that only changed its base URL: the official `openai` package against `serve`."""

from __future__ import annotations

import base64
from collections.abc import Iterator

import httpx
import openai
import pytest

from tests.acceptance.stack import PATIENCE_S, Stack, until

HELLO = [{"role": "user", "content": "Hello there"}]
WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather of a town",
        "parameters": {
            "type": "object",
            "properties": {"town": {"type": "string"}},
            "required": ["town"],
        },
    },
}
PIXEL = base64.b64encode(b"\x89PNG\r\n\x1a\n").decode()


@pytest.fixture(scope="module")
def acme(served: Stack) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{served.url}/v1", api_key=served.key("acme")) as client:
        yield client


def client_for(served: Stack, key: str) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{served.url}/v1", api_key=key, max_retries=0)


def test_a_plain_call_is_answered_and_recorded(served: Stack, acme: openai.OpenAI) -> None:
    answer = acme.chat.completions.with_raw_response.create(
        model="demo-chat", messages=HELLO, max_tokens=12
    )
    parsed = answer.parse()
    assert parsed.choices[0].message.content
    assert parsed.usage is not None
    request_id = answer.headers["x-request-id"]
    assert answer.headers["x-fairlane-lane"] == "interactive-standard"
    assert int(answer.headers["x-fairlane-queue-ms"]) >= 0
    assert int(answer.headers["x-ratelimit-limit-requests"]) == 1200

    def recorded() -> dict[str, object] | None:
        return next((r for r in served.records() if r["request_id"] == request_id), None)

    record = until(recorded, "the record is exported")
    assert record["tenant"] == "acme"
    assert record["prompt_tokens"] == parsed.usage.prompt_tokens
    assert record["completion_tokens"] == parsed.usage.completion_tokens
    assert record["usage_source"] == "engine"
    assert record["cost"] == parsed.usage.prompt_tokens + 2 * parsed.usage.completion_tokens


def test_a_stream_hides_the_usage_that_nobody_asked_for(acme: openai.OpenAI) -> None:
    chunks = list(
        acme.chat.completions.create(model="demo-chat", messages=HELLO, max_tokens=8, stream=True)
    )
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
    assert len(text.split()) == 8
    assert chunks[-1].choices[0].finish_reason == "length"
    assert all(chunk.usage is None for chunk in chunks)


def test_a_stream_shows_the_usage_that_was_asked_for(acme: openai.OpenAI) -> None:
    chunks = list(
        acme.chat.completions.create(
            model="demo-chat",
            messages=HELLO,
            max_tokens=8,
            stream=True,
            stream_options={"include_usage": True},
        )
    )
    assert chunks[-1].choices == []
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == 8


def test_tools_are_called(acme: openai.OpenAI) -> None:
    answer = acme.chat.completions.create(model="demo-chat", messages=HELLO, tools=[WEATHER])
    assert answer.choices[0].finish_reason == "tool_calls"
    calls = answer.choices[0].message.tool_calls
    assert calls
    assert calls[0].function.name == "weather"


def test_streamed_tool_calls_keep_their_pieces(acme: openai.OpenAI) -> None:
    with acme.chat.completions.stream(model="demo-chat", messages=HELLO, tools=[WEATHER]) as stream:
        final = stream.get_final_completion()
    assert final.choices[0].message.tool_calls[0].function.name == "weather"


def test_two_answers_are_metered_as_two(served: Stack, acme: openai.OpenAI) -> None:
    raw = acme.chat.completions.with_raw_response.create(
        model="demo-chat", messages=HELLO, n=2, max_tokens=6
    )
    answer = raw.parse()
    assert [choice.index for choice in answer.choices] == [0, 1]
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 12


def test_an_image_part_is_accepted(acme: openai.OpenAI) -> None:
    answer = acme.chat.completions.create(
        model="demo-chat",
        max_tokens=4,
        messages=[
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "What is this?"},
                    {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}"}},
                ],
            }
        ],
    )
    assert answer.choices[0].message.content


def test_completions_work_whole_and_streamed(acme: openai.OpenAI) -> None:
    whole = acme.completions.create(model="demo-chat", prompt="Once upon", max_tokens=5)
    streamed = acme.completions.create(
        model="demo-chat", prompt="Once upon", max_tokens=5, stream=True
    )
    assert "".join(chunk.choices[0].text for chunk in streamed) == whole.choices[0].text


def test_an_alias_is_served_by_its_pool(acme: openai.OpenAI) -> None:
    answer = acme.chat.completions.create(model="gpt-4o-mini", messages=HELLO, max_tokens=3)
    assert answer.choices[0].message.content


def test_models_are_those_the_key_may_use(acme: openai.OpenAI) -> None:
    assert [model.id for model in acme.models.list()] == ["demo-chat", "gpt-4o-mini"]
    assert acme.models.retrieve("demo-chat").id == "demo-chat"
    with pytest.raises(openai.NotFoundError):
        acme.models.retrieve("no-such-model")


def test_a_wrong_key_is_an_authentication_error(served: Stack) -> None:
    with (
        client_for(served, "fl_nobody_x") as nobody,
        pytest.raises(openai.AuthenticationError) as refused,
    ):
        nobody.chat.completions.create(model="demo-chat", messages=HELLO)
    assert refused.value.code == "invalid_api_key"
    assert "fl_nobody_x" not in str(refused.value)


def test_an_unknown_model_is_a_not_found_error(acme: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as refused:
        acme.chat.completions.create(model="gpt-9", messages=HELLO)
    assert refused.value.code == "model_not_found"
    assert refused.value.request_id


def test_a_lane_that_is_not_the_tenants_is_denied(served: Stack) -> None:
    with (
        client_for(served, served.key("initech")) as initech,
        pytest.raises(openai.PermissionDeniedError) as refused,
    ):
        initech.chat.completions.create(
            model="demo-chat",
            messages=HELLO,
            extra_headers={"X-Fairlane-Lane": "interactive-critical"},
        )
    assert refused.value.code == "lane_not_allowed"
    assert "async-batch" in refused.value.message


def test_too_much_output_is_a_bad_request(acme: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        acme.chat.completions.create(model="demo-chat", messages=HELLO, max_tokens=5000)
    assert refused.value.code == "output_limit_exceeded"
    assert "4096" in refused.value.message


def test_a_body_that_is_no_json_is_a_bad_request(served: Stack) -> None:
    answer = httpx.post(
        f"{served.url}/v1/chat/completions",
        content=b"{nonsense",
        headers={"Authorization": f"Bearer {served.key('acme')}"},
        timeout=PATIENCE_S,
    )
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == "invalid_request"


@pytest.mark.parametrize("path", ["/v1/nothing", "/v1//chat/completions", "/v1/chat/completions/"])
def test_an_unknown_path_reaches_no_engine(served: Stack, path: str) -> None:
    answer = httpx.post(f"{served.url}{path}", json={"model": "demo-chat"}, timeout=PATIENCE_S)
    assert answer.status_code == 404
    assert answer.json()["error"]["message"]


def test_a_response_is_answered_whole_and_streamed(served: Stack, acme: openai.OpenAI) -> None:
    answer = acme.responses.create(
        model="demo-chat", input="Hello there", instructions="Be brief", max_output_tokens=40
    )
    assert answer.usage is not None
    assert len(answer.output_text.split()) == answer.usage.output_tokens
    with acme.responses.stream(model="demo-chat", input=[*HELLO], max_output_tokens=6) as stream:
        text = "".join(e.delta for e in stream if e.type == "response.output_text.delta")
        final = stream.get_final_response()
    assert len(text.split()) == 6
    assert final.output_text == text
    assert (final.status, final.usage and final.usage.output_tokens) == ("incomplete", 6)
    request_id = final.id.removeprefix("chatcmpl-")  # engines name it after the call

    def recorded() -> dict[str, object] | None:
        return next((r for r in served.records() if r["request_id"] == request_id), None)

    record = until(recorded, "the record is exported")
    assert (record["completion_tokens"], record["finish_reason"]) == (6, "length")


def test_a_response_calls_a_tool(acme: openai.OpenAI) -> None:
    tool = {"type": "function", **WEATHER["function"]}
    answer = acme.responses.create(model="demo-chat", input="Hello there", tools=[tool])
    [call] = answer.output
    assert (call.type, call.name, call.arguments) == ("function_call", "weather", '{"town": "sea"}')
    result = {"type": "function_call_output", "call_id": call.call_id, "output": "rain"}
    told = [*HELLO, call.model_dump(exclude_none=True), result]
    assert acme.responses.create(model="demo-chat", input=told, tools=[tool]).output_text


def test_a_broken_response_raises(served: Stack, acme: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="previous_response_id is not taken"):
        acme.responses.create(model="demo-chat", input="x", previous_response_id="resp_1")
    with pytest.raises(openai.NotFoundError):
        acme.responses.retrieve("resp_1")


def test_texts_are_embedded(acme: openai.OpenAI) -> None:
    answer = acme.embeddings.create(model="demo-chat", input=["Hello", "there"], dimensions=8)
    assert [len(vector.embedding) for vector in answer.data] == [8, 8]
    assert answer.usage.prompt_tokens > 0
