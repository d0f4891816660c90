"""OpenAI's package for Python."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import openai
import pydantic
from given import ENDLESS, ENDLESS_TOKENS, HELLO, KEYS, LONG, MODEL, PARAMETERS, URL, raised, run

TOOLS: Any = [{"type": "function", "function": {"name": "weather", "parameters": PARAMETERS}}]


class Town(pydantic.BaseModel):
    name: str
    people: int


def client(tenant: str = "open", **options: Any) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{URL}/v1", api_key=KEYS.get(tenant, tenant), **options)


def ask(caller: openai.OpenAI, **fields: Any) -> Any:
    return caller.chat.completions.create(**{"model": MODEL, "messages": HELLO, **fields})


def check_chat() -> None:
    raw = client().chat.completions.with_raw_response.create(
        model=MODEL, messages=HELLO, max_tokens=5, **ENDLESS
    )
    answer = raw.parse()
    assert answer.usage.completion_tokens == 5
    assert raw.headers["x-request-id"] == answer.id.removeprefix("chatcmpl-")
    assert raw.headers["x-fairlane-lane"] == "normal"
    assert raw.headers["x-ratelimit-limit-requests"] == "5000"


def check_stream() -> None:
    options = {"include_usage": True}
    chunks = list(ask(client(), max_tokens=5, stream=True, stream_options=options, **ENDLESS))
    assert chunks[-1].usage.completion_tokens == 5
    assert len("".join(c.choices[0].delta.content or "" for c in chunks[:-1]).split()) == 5


def check_tools() -> None:
    calls = ask(client(), tools=TOOLS).choices[0].message.tool_calls
    assert calls[0].function.arguments == '{"town": "sea"}'
    with client().chat.completions.stream(model=MODEL, messages=HELLO, tools=TOOLS) as stream:
        [call] = stream.get_final_completion().choices[0].message.tool_calls
    assert (call.function.name, call.function.arguments) == ("weather", '{"town": "sea"}')


def check_forms() -> None:
    sea = Town(name="sea", people=1)
    asked: Any = {"model": MODEL, "messages": HELLO, "response_format": Town}
    assert client().chat.completions.parse(**asked).choices[0].message.parsed == sea
    with client().chat.completions.stream(**asked) as stream:
        assert stream.get_final_completion().choices[0].message.parsed == sea
    asked = {"model": MODEL, "input": "Hello", "text_format": Town}
    assert client().responses.parse(**asked).output_parsed == sea
    with client().responses.stream(**asked) as events:
        kinds = [event.type for event in events]
        assert events.get_final_response().output_parsed == sea
    assert kinds[-1] == "response.completed"


def check_responses() -> None:
    tool: Any = {"type": "function", "name": "weather", "parameters": PARAMETERS, "strict": True}
    raw = client().responses.with_raw_response.create(
        model=MODEL, input="Hello", max_output_tokens=5, extra_body={"ignore_eos": True}
    )
    assert raw.parse().usage.output_tokens == 5
    with client().responses.stream(model=MODEL, input="Hello", tools=[tool]) as events:
        [call] = events.get_final_response().output
    assert (call.name, call.parsed_arguments) == ("weather", {"town": "sea"})


def check_completions() -> None:
    asked: Any = {"model": MODEL, "prompt": "Once upon", "max_tokens": 5}
    whole = client().completions.create(**asked).choices[0].text
    chunks = list(client().completions.create(**asked, stream=True))
    assert "".join(chunk.choices[0].text for chunk in chunks) == whole


def check_embeddings() -> None:
    """It asks for base64 where no form is named."""
    given = client().embeddings.create(model=MODEL, input=["Hello", "there"])
    floats = client().embeddings.create(model=MODEL, input="Hello", encoding_format="float")
    tokens = client().embeddings.create(model=MODEL, input=[[1, 2, 3], [4]])
    assert [round(x, 5) for x in given.data[0].embedding] == [
        round(x, 5) for x in floats.data[0].embedding
    ]
    assert (len(tokens.data), tokens.usage.prompt_tokens) == (2, 4)


def check_models() -> None:
    assert MODEL in [model.id for model in client().models.list()]
    assert client().models.retrieve(MODEL).id == MODEL


async def check_async() -> None:
    async with openai.AsyncOpenAI(base_url=f"{URL}/v1", api_key=KEYS["open"]) as caller:
        asked: Any = {"model": MODEL, "messages": HELLO, "max_tokens": 4}
        calls = [caller.chat.completions.create(**asked) for _ in range(8)]
        assert all(a.usage for a in await asyncio.gather(*calls))
        chunks = [c async for c in await caller.chat.completions.create(**asked, stream=True)]
        assert chunks[-1].choices[0].finish_reason
        async with caller.responses.stream(model=MODEL, input="Hello") as events:
            assert (await events.get_final_response()).output_text


def check_errors() -> None:
    for tenant, fields, error, code in (
        ("fl_nobody_x", {}, openai.AuthenticationError, "invalid_api_key"),
        ("open", {"model": "gpt-9"}, openai.NotFoundError, "model_not_found"),
        ("short", {"messages": LONG}, openai.BadRequestError, "context_length_exceeded"),
        ("short", {"max_tokens": 500}, openai.BadRequestError, "output_limit_exceeded"),
    ):
        refused = raised(error, ask, client(tenant), **fields)
        assert (refused.code, len(refused.request_id)) == (code, 32)


def check_waits_as_told() -> None:
    """Its own retry comes when there is room: it is refused once, not twice."""
    caller = client("bucket", max_retries=2)
    fields: Any = {"model": MODEL, "messages": HELLO, "max_tokens": 50, **ENDLESS}
    retries = []
    while not any(retries) and len(retries) < 30:
        retries.append(caller.chat.completions.with_raw_response.create(**fields).retries_taken)
    assert retries[-1] == 1, retries


def check_stops_when_told() -> None:
    for tenant, code in (("spent", "insufficient_quota"), ("closed", "rate_limit_exceeded")):
        refused = raised(openai.RateLimitError, ask, client(tenant, max_retries=2))
        assert refused.code == code
        assert refused.response.request.headers["x-stainless-retry-count"] == "0"


def check_hang_up() -> None:
    """The only place is given back when a stream is closed, and when a call is given up."""
    caller = client("one", max_retries=0)
    stream = ask(caller, max_tokens=ENDLESS_TOKENS, stream=True, **ENDLESS)
    next(iter(stream))
    stream.close()
    wait_for_a_place(caller)
    late = caller.with_options(timeout=0.5)
    raised(openai.APITimeoutError, ask, late, max_tokens=ENDLESS_TOKENS, **ENDLESS)
    wait_for_a_place(caller)


def wait_for_a_place(caller: openai.OpenAI) -> None:
    while True:
        try:
            ask(caller, max_tokens=2)
        except openai.RateLimitError:
            time.sleep(0.05)
        else:
            return


if __name__ == "__main__":
    run(globals())
