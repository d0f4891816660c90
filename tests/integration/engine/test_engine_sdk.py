"""The official OpenAI client against the engine itself, unchanged."""

from __future__ import annotations

from collections.abc import AsyncIterator

import openai
import pydantic
import pytest

from tests.fakes import RunningEngine

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "weather",
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
        },
    }
]
HELLO = [{"role": "user", "content": "hello"}]


class Town(pydantic.BaseModel):
    name: str
    people: int


@pytest.fixture
async def client(engine: RunningEngine) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(base_url=engine.url, api_key="any", max_retries=0) as sdk:
        yield sdk


async def test_plain_with_two_choices(client):
    answer = await client.chat.completions.create(
        model="demo-chat", messages=HELLO, n=2, max_tokens=5, extra_body={"ignore_eos": True}
    )
    assert [choice.finish_reason for choice in answer.choices] == ["length", "length"]
    assert answer.usage.completion_tokens == 10
    assert answer.usage.prompt_tokens_details.cached_tokens == 0


async def test_stream_with_usage(client):
    chunks = await client.chat.completions.create(
        model="demo-chat",
        messages=HELLO,
        max_tokens=5,
        stream=True,
        stream_options={"include_usage": True},
    )
    got = [chunk async for chunk in chunks]
    assert got[-1].usage.completion_tokens == 5
    assert "".join(c.choices[0].delta.content for c in got[:-1]).count(" ") == 4


async def test_tool_calls_streamed_and_parsed(client):
    async with client.chat.completions.stream(
        model="demo-chat", messages=HELLO, tools=TOOLS
    ) as events:
        final = await events.get_final_completion()
    call = final.choices[0].message.tool_calls[0]
    assert (call.function.name, call.function.arguments) == ("weather", '{"city": "sea"}')


async def test_an_answer_has_the_form_that_was_asked_for(client):
    asked = {"model": "demo-chat", "messages": HELLO}
    answer = await client.chat.completions.parse(**asked, response_format=Town)
    assert answer.choices[0].message.parsed == Town(name="sea", people=1)
    async with client.chat.completions.stream(**asked, response_format=Town) as events:
        final = await events.get_final_completion()
    assert final.choices[0].message.parsed == Town(name="sea", people=1)
    response = await client.responses.parse(model="demo-chat", input="hello", text_format=Town)
    assert response.output_parsed == Town(name="sea", people=1)


async def test_an_object_without_a_schema_and_one_cut_off(client):
    asked = {"model": "demo-chat", "messages": HELLO, "response_format": {"type": "json_object"}}
    answer = (await client.chat.completions.create(**asked)).choices[0]
    assert (answer.finish_reason, answer.message.content) == ("stop", '{"answer": "sea"}')
    cut = await client.chat.completions.create(**asked, max_tokens=2)
    assert (cut.choices[0].finish_reason, cut.choices[0].message.content) == ("length", '{"answer')
    assert cut.usage.completion_tokens == 2


async def test_an_image_part(client):
    image = {"type": "image_url", "image_url": {"url": "https://example.invalid/cat.png"}}
    parts = [{"type": "text", "text": "What is this?"}, image]
    messages = [{"role": "user", "content": parts}]
    answer = await client.chat.completions.create(model="demo-chat", messages=messages)
    assert answer.usage.prompt_tokens > 256


async def test_text_completion_and_models(client):
    answer = await client.completions.create(model="demo-chat", prompt=["sea", "sky"], max_tokens=4)
    assert len(answer.choices) == 2
    assert [model.id async for model in client.models.list()] == ["demo-chat"]


async def test_errors_arrive_as_the_clients_own_classes(client, engine):
    with pytest.raises(openai.NotFoundError):
        await client.chat.completions.create(model="nope", messages=HELLO)
    with pytest.raises(openai.BadRequestError):
        await client.chat.completions.create(model="demo-chat", messages=HELLO, max_tokens=10**6)
    engine.script("status=429,retry-after=1")
    with pytest.raises(openai.RateLimitError):
        await client.chat.completions.create(model="demo-chat", messages=HELLO)
    engine.script("out=5,error@2")
    with pytest.raises(openai.APIError, match="simulated failure"):
        async for _ in await client.chat.completions.create(
            model="demo-chat", messages=HELLO, stream=True
        ):
            pass
