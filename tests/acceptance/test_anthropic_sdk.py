"""An application written for Anthropic's API: the official package, unchanged, against `serve`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import anthropic
import pydantic
import pytest

from tests.acceptance.stack import Stack, until

HELLO: Any = [{"role": "user", "content": "Hello there"}]
WEATHER: Any = {
    "name": "weather",
    "description": "The weather of a town",
    "input_schema": {"type": "object", "properties": {"town": {"type": "string"}}},
}


@pytest.fixture(scope="module")
def acme(served: Stack) -> Iterator[anthropic.Anthropic]:
    with client_for(served, served.key("acme")) as client:
        yield client


def client_for(served: Stack, key: str) -> anthropic.Anthropic:
    return anthropic.Anthropic(base_url=served.url, api_key=key, max_retries=0)


def record_of(served: Stack, request_id: str | None) -> dict[str, Any]:
    assert request_id
    found: dict[str, Any] = until(
        lambda: next((r for r in served.records() if r["request_id"] == request_id), None),
        "the record is exported",
    )
    return found


def test_a_message_is_answered_and_recorded(served: Stack, acme: anthropic.Anthropic) -> None:
    answer = acme.messages.create(
        model="demo-chat", max_tokens=12, system="Be brief", messages=HELLO
    )
    [block] = answer.content
    assert block.type == "text"
    assert len(block.text.split()) == answer.usage.output_tokens
    record = record_of(served, answer._request_id)
    cached = answer.usage.cache_read_input_tokens or 0
    assert record["tenant"] == "acme"
    assert record["prompt_tokens"] == answer.usage.input_tokens + cached
    assert record["completion_tokens"] == answer.usage.output_tokens
    assert record["usage_source"] == "engine"
    assert record["finish_reason"] == {"end_turn": "stop", "max_tokens": "length"}.get(
        answer.stop_reason or ""
    )


def test_a_streamed_message_keeps_its_events_and_is_recorded(
    served: Stack, acme: anthropic.Anthropic
) -> None:
    with acme.messages.stream(model="demo-chat", max_tokens=6, messages=HELLO) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
        request_id = stream.response.headers["request-id"]
    assert len(text.split()) == 6
    assert (final.stop_reason, final.usage.output_tokens) == ("max_tokens", 6)
    record = record_of(served, request_id)
    assert (record["completion_tokens"], record["finish_reason"]) == (6, "length")
    assert record["ttft_ms"] is not None


def test_tools_are_called_and_their_results_answered(acme: anthropic.Anthropic) -> None:
    asked = acme.messages.create(model="demo-chat", max_tokens=50, messages=HELLO, tools=[WEATHER])
    [use] = asked.content
    assert asked.stop_reason == "tool_use"
    assert use.type == "tool_use"
    assert (use.name, use.input) == ("weather", {"town": "sea"})
    result: Any = {"type": "tool_result", "tool_use_id": use.id, "content": "rain"}
    turns = [*HELLO, {"role": "assistant", "content": asked.content}]
    answer = acme.messages.create(
        model="demo-chat",
        max_tokens=8,
        tools=[WEATHER],
        messages=[*turns, {"role": "user", "content": [result]}],
    )
    assert answer.content[0].type == "text"


class Town(pydantic.BaseModel):
    name: str
    people: int


def test_an_answer_has_the_form_that_was_asked_for(acme: anthropic.Anthropic) -> None:
    answer = acme.messages.parse(
        model="demo-chat", max_tokens=50, messages=HELLO, output_format=Town
    )
    assert answer.parsed_output == Town(name="sea", people=1)


def test_models_are_listed_as_it_reads_them(acme: anthropic.Anthropic) -> None:
    found = list(acme.models.list())
    assert [model.display_name for model in found] == ["demo-chat", "gpt-4o-mini"]
    assert acme.models.retrieve("demo-chat").created_at == found[0].created_at


@pytest.mark.parametrize(
    ("key", "fields", "error", "says"),
    [
        ("wrong", {}, anthropic.AuthenticationError, "authentication_error"),
        (None, {"model": "no-such"}, anthropic.NotFoundError, "not_found_error"),
        (None, {"max_tokens": 20_000}, anthropic.BadRequestError, "max_tokens"),
        (None, {"messages": []}, anthropic.BadRequestError, "at least one message"),
    ],
)
def test_refusals_are_the_errors_it_knows(
    served: Stack, key: str | None, fields: Any, error: type[anthropic.APIStatusError], says: str
) -> None:
    with client_for(served, key or served.key("acme")) as client, pytest.raises(error) as caught:
        client.messages.create(
            **{"model": "demo-chat", "max_tokens": 4, "messages": HELLO, **fields}
        )
    assert says in str(caught.value)
    assert caught.value.request_id


def test_what_is_not_served_says_so_in_its_shape(acme: anthropic.Anthropic) -> None:
    with pytest.raises(anthropic.NotFoundError) as caught:
        acme.messages.count_tokens(model="demo-chat", messages=HELLO)
    assert "There is no /v1/messages/count_tokens here" in str(caught.value)
