"""Anthropic's package for Python."""

from __future__ import annotations

import time
from typing import Any

import anthropic
import pydantic
from given import ENDLESS, ENDLESS_TOKENS, HELLO, KEYS, LONG, MODEL, PARAMETERS, URL, raised, run

TOOLS: Any = [{"name": "weather", "input_schema": PARAMETERS}]


class Town(pydantic.BaseModel):
    name: str
    people: int


def client(tenant: str = "open", **options: Any) -> anthropic.Anthropic:
    return anthropic.Anthropic(base_url=URL, api_key=KEYS.get(tenant, tenant), **options)


def ask(caller: anthropic.Anthropic, **fields: Any) -> Any:
    given = {"model": MODEL, "messages": HELLO, "max_tokens": 5, **fields}
    return caller.messages.create(**given)


def check_messages() -> None:
    raw = client().messages.with_raw_response.create(
        model=MODEL, messages=HELLO, max_tokens=5, **ENDLESS
    )
    assert raw.parse().usage.output_tokens == 5
    assert raw.headers["request-id"] == raw.headers["x-request-id"]
    by_token = anthropic.Anthropic(base_url=URL, api_key=None, auth_token=KEYS["open"])
    assert ask(by_token).content[0].text


def check_stream() -> None:
    with client().messages.stream(model=MODEL, messages=HELLO, max_tokens=5, **ENDLESS) as stream:
        assert len("".join(stream.text_stream).split()) == 5
        assert stream.get_final_message().stop_reason == "max_tokens"


def check_tools() -> None:
    with client().messages.stream(
        model=MODEL, messages=HELLO, max_tokens=50, tools=TOOLS
    ) as stream:
        [use] = stream.get_final_message().content
    assert (use.name, use.input) == ("weather", {"town": "sea"})

    @anthropic.beta_tool
    def weather(town: str) -> str:
        """The weather of a town."""
        return f"rain in {town}"

    runner = client().beta.messages.tool_runner(
        model=MODEL, messages=HELLO, max_tokens=50, tools=[weather]
    )
    assert runner.until_done().content[0].type == "text"


def check_forms() -> None:
    asked: Any = {"model": MODEL, "messages": HELLO, "max_tokens": 50, "output_format": Town}
    assert client().messages.parse(**asked).parsed_output == Town(name="sea", people=1)


def check_models() -> None:
    assert MODEL in [model.display_name for model in client().models.list()]
    assert client().models.retrieve(MODEL).type == "model"


async def check_async() -> None:
    async with anthropic.AsyncAnthropic(base_url=URL, api_key=KEYS["open"]) as caller:
        asked: Any = {"model": MODEL, "messages": HELLO, "max_tokens": 5}
        async with caller.messages.stream(**asked) as stream:
            assert [text async for text in stream.text_stream]
        assert (await caller.messages.create(**asked)).usage.output_tokens


def check_errors() -> None:
    for tenant, fields, error, kind in (
        ("fl_nobody_x", {}, anthropic.AuthenticationError, "authentication_error"),
        ("open", {"model": "gpt-9"}, anthropic.NotFoundError, "not_found_error"),
        ("short", {"messages": LONG}, anthropic.BadRequestError, "invalid_request_error"),
    ):
        refused = raised(error, ask, client(tenant), **fields)
        assert (refused.body["error"]["type"], len(refused.request_id)) == (kind, 32)


def check_waits_as_told() -> None:
    """Its own retry comes when there is room: it is refused once, not twice."""
    caller = client("bucket", max_retries=2)
    retries = []
    while not any(retries) and len(retries) < 30:
        raw = caller.messages.with_raw_response.create(
            model=MODEL, messages=HELLO, max_tokens=50, **ENDLESS
        )
        retries.append(raw.retries_taken)
    assert retries[-1] == 1, retries


def check_stops_when_told() -> None:
    """It would sleep as long as it is told to: a day, where a tenant may run nothing."""
    for tenant in ("spent", "closed"):
        refused = raised(anthropic.RateLimitError, ask, client(tenant, max_retries=2))
        assert refused.response.request.headers["x-stainless-retry-count"] == "0"


def check_hang_up() -> None:
    """The only place is given back when a stream is closed, and when a call is given up."""
    caller = client("one", max_retries=0)
    asked: Any = {"model": MODEL, "messages": HELLO, "max_tokens": ENDLESS_TOKENS, **ENDLESS}
    with caller.messages.stream(**asked, timeout=600) as stream:
        next(iter(stream.text_stream))
    wait_for_a_place(caller)
    raised(anthropic.APITimeoutError, ask, caller, **asked, timeout=0.5)
    wait_for_a_place(caller)


def wait_for_a_place(caller: anthropic.Anthropic) -> None:
    while True:
        try:
            ask(caller)
        except anthropic.RateLimitError:
            time.sleep(0.05)
        else:
            return


if __name__ == "__main__":
    run(globals())
