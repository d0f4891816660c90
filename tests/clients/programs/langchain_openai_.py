"""langchain-openai."""

from __future__ import annotations

import time
from typing import Any
from unittest import mock

import openai
import pydantic
import tiktoken
from given import ENDLESS_TOKENS, KEYS, LONG, MODEL, URL, raised, run
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI, OpenAI, OpenAIEmbeddings

BYTES = {bytes([byte]): byte for byte in range(256)}
ENCODING = tiktoken.Encoding("bytes", pat_str=r"[\s\S]", mergeable_ranks=BYTES, special_tokens={})
ENDLESS: Any = {"max_tokens": ENDLESS_TOKENS, "extra_body": {"ignore_eos": True}}


class Town(pydantic.BaseModel):
    """A town."""

    name: str
    people: int


@tool
def weather(town: str) -> str:
    """The weather of a town."""
    return f"rain in {town}"


def at(tenant: str = "open") -> dict[str, Any]:
    return {"model": MODEL, "base_url": f"{URL}/v1", "api_key": KEYS.get(tenant, tenant)}


def chat(tenant: str = "open", **options: Any) -> ChatOpenAI:
    return ChatOpenAI(**at(tenant), **options)


def check_invoke() -> None:
    answer = chat(include_response_headers=True).invoke("Hello", max_tokens=5)
    assert answer.usage_metadata["output_tokens"] <= 5
    assert answer.response_metadata["headers"]["x-fairlane-lane"] == "normal"


def check_stream() -> None:
    """With and without usage; each chunk adds to the answer."""
    first, *rest = chat(stream_usage=True).stream("Hello", max_tokens=5)
    whole = sum(rest, first)
    assert len(whole.content.split()) == whole.usage_metadata["output_tokens"]
    assert all(c.usage_metadata is None for c in chat().stream("Hello", max_tokens=5))


async def check_async() -> None:
    assert [c.content async for c in chat().astream("Hello", max_tokens=5)]
    answers = await chat().abatch(["a", "b", "c", "d"], max_tokens=5)
    assert [a.usage_metadata["output_tokens"] <= 5 for a in answers] == [True] * 4


def check_batch() -> None:
    assert all(a.content for a in chat().batch(["a", "b", "c", "d"], max_tokens=5))


def check_tools() -> None:
    for caller in (chat(), chat(use_responses_api=True)):
        bound = caller.bind_tools([weather])
        called = bound.invoke("How is the weather?")
        [call] = called.tool_calls
        assert (call["name"], call["args"]) == ("weather", {"town": "sea"})
        result = ToolMessage(weather.invoke(call["args"]), tool_call_id=call["id"])
        assert bound.invoke([HumanMessage("How is the weather?"), called, result]).text
        first, *rest = bound.stream("How is the weather?")
        assert sum(rest, first).tool_calls[0]["args"] == {"town": "sea"}


def check_forms() -> None:
    for method in ("json_schema", "function_calling"):
        formed = chat().with_structured_output(Town, method=method)
        assert formed.invoke("A town") == Town(name="sea", people=1)
    assert [*chat().with_structured_output(Town).stream("A town")][-1].name == "sea"


def check_responses() -> None:
    answer = chat(use_responses_api=True).invoke("Hello", max_tokens=5)
    assert answer.usage_metadata["output_tokens"] <= 5
    first, *rest = chat(use_responses_api=True).stream("Hello", max_tokens=5)
    assert sum(rest, first).usage_metadata["output_tokens"] <= 5


def check_completions() -> None:
    whole = OpenAI(**at(), max_tokens=5).invoke("Once upon")
    assert "".join(OpenAI(**at(), max_tokens=5).stream("Once upon")) == whole


def check_embeddings() -> None:
    """By default it sends arrays of tokens, with an encoding that tiktoken would download; here
    each byte is a token. A text that is longer than a call takes is sent in parts."""
    by_text = OpenAIEmbeddings(**at(), check_embedding_ctx_length=False)
    assert len(by_text.embed_documents(["Hello", "there"])) == 2
    with (
        mock.patch("tiktoken.encoding_for_model", return_value=ENCODING),
        mock.patch("tiktoken.get_encoding", return_value=ENCODING),
    ):
        by_token = OpenAIEmbeddings(**at(), dimensions=8, embedding_ctx_length=40)
        vectors = by_token.embed_documents(["a text past that length, " * 9, "there"])
    assert [len(vector) for vector in vectors] == [8, 8]


async def check_async_embeddings() -> None:
    by_text = OpenAIEmbeddings(**at(), check_embedding_ctx_length=False)
    assert await by_text.aembed_query("Hello")


def check_errors() -> None:
    for tenant, said, error in (
        ("fl_nobody_x", "Hello", openai.AuthenticationError),
        ("spent", "Hello", openai.RateLimitError),
        ("short", LONG[0]["content"], openai.BadRequestError),
    ):
        refused = raised(error, chat(tenant).invoke, said)
        assert refused.response.request.headers["x-stainless-retry-count"] == "0"


def check_hang_up() -> None:
    caller = chat("one", max_retries=0)
    stream = caller.stream("Hello", **ENDLESS)
    next(stream)
    stream.close()
    while True:
        try:
            caller.invoke("Hello", max_tokens=2)
        except openai.RateLimitError:
            time.sleep(0.05)
        else:
            return


if __name__ == "__main__":
    run(globals())
