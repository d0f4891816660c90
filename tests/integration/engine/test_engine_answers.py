"""What a caller gets: bodies, streams, usage, tools, images."""

from __future__ import annotations

import json

import pytest

from tests.fakes import engine_client, running_engine
from tests.integration.engine.asking import CHAT, chat, events, said, stream, usage

WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string"},
                "days": {"type": "integer", "minimum": 2},
                "unit": {"enum": ["celsius", "kelvin"]},
                "places": {"type": "array", "items": {"$ref": "#/$defs/place"}},
            },
            "$defs": {"place": {"type": "object", "properties": {"lat": {"type": "number"}}}},
        },
    },
}
CLOCK = {"type": "function", "function": {"name": "clock"}}


async def test_a_plain_answer_has_as_many_tokens_as_its_usage_says(http):
    answer = (await http.post(CHAT, json=chat(max_tokens=12))).json()
    told = answer["usage"]
    text = answer["choices"][0]["message"]["content"]
    counted = (await http.post("/tokenize", json={"prompt": text})).json()["count"]
    assert counted == told["completion_tokens"] == 12
    assert told["total_tokens"] == told["prompt_tokens"] + 12
    assert answer["choices"][0]["finish_reason"] == "length"
    assert answer["system_fingerprint"] == "simulated"


async def test_prompt_tokens_are_what_tokenize_counts(http):
    body = chat("Sea and sky. " * 40)
    counted = (await http.post("/tokenize", json={"messages": body["messages"]})).json()
    assert (await usage(http, text="Sea and sky. " * 40))["prompt_tokens"] == counted["count"]


async def test_a_stream_opens_with_the_role_and_tells_the_same_text(http):
    plain = (await http.post(CHAT, json=chat(max_tokens=9))).json()
    frames = await stream(http, chat(max_tokens=9))
    assert frames[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert frames[-1] == "[DONE]"
    assert said(frames) == plain["choices"][0]["message"]["content"]
    assert [frame["choices"][0]["finish_reason"] for frame in frames[:-1]] == [None] * 9 + [
        "length"
    ]


async def test_a_stream_tells_no_usage_unless_asked(http):
    assert all("usage" not in frame for frame in (await stream(http, chat(max_tokens=3)))[:-1])


async def test_asked_for_usage_the_last_frame_before_the_end_has_it_and_no_choice(http):
    frames = await stream(http, chat(max_tokens=3, stream_options={"include_usage": True}))
    assert frames[-2]["choices"] == []
    assert frames[-2]["usage"]["completion_tokens"] == 3
    assert all("usage" not in frame for frame in frames[:-2])


async def test_running_usage_is_per_choice_and_only_the_last_frame_has_the_sum(http):
    options = {"include_usage": True, "continuous_usage_stats": True}
    frames = await stream(http, chat(max_tokens=4, n=2, ignore_eos=True, stream_options=options))
    for choice in (0, 1):
        mine = [f for f in frames[:-2] if f["choices"][0]["index"] == choice]
        assert [f["usage"]["completion_tokens"] for f in mine] == [0, 1, 2, 3, 4]
    assert frames[-2]["usage"]["completion_tokens"] == 8
    assert frames[-2]["usage"]["prompt_tokens"] == frames[0]["usage"]["prompt_tokens"]


async def test_running_usage_of_several_prompts_is_each_ones_own(http):
    options = {"include_usage": True, "continuous_usage_stats": True}
    asked = {"model": "demo-chat", "prompt": ["One", "One and two and three"], "max_tokens": 2}
    frames = await stream(http, {**asked, "stream_options": options}, "/v1/completions")
    told = {f["choices"][0]["index"]: f["usage"]["prompt_tokens"] for f in frames[:-2]}
    assert told[0] < told[1]
    assert frames[-2]["usage"]["prompt_tokens"] == told[0] + told[1]


async def test_stream_options_without_a_stream_are_refused(http):
    answer = await http.post(CHAT, json=chat(stream_options={"include_usage": True}))
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "stream_options"


async def test_the_same_request_gets_the_same_answer_and_another_seed_another(http, engine):
    async def text(**fields: object) -> str:
        body = (await http.post(CHAT, json=chat(**fields))).json()
        return str(body["choices"][0]["message"]["content"])

    assert await text() == await text()
    assert await text(seed=1) != await text(seed=2)
    async with running_engine(seed=7) as other, engine_client(other) as elsewhere:
        answer = (await elsewhere.post(CHAT, json=chat())).json()
        assert answer["choices"][0]["message"]["content"] != await text()


async def test_without_ignore_eos_an_answer_may_stop_by_itself(http):
    answer = (await http.post(CHAT, json=chat(max_tokens=5000))).json()
    assert answer["choices"][0]["finish_reason"] == "stop"
    assert answer["usage"]["completion_tokens"] < 5000


async def test_choices_differ_and_the_prompt_counts_once(http):
    one = await usage(http, max_tokens=6, ignore_eos=True)
    answer = (await http.post(CHAT, json=chat(max_tokens=6, n=3, ignore_eos=True))).json()
    texts = {choice["message"]["content"] for choice in answer["choices"]}
    assert [choice["index"] for choice in answer["choices"]] == [0, 1, 2]
    assert len(texts) == 3
    assert answer["usage"]["prompt_tokens"] == one["prompt_tokens"]
    assert answer["usage"]["completion_tokens"] == 18


async def test_a_tool_is_called_with_arguments_that_fit_its_schema(http):
    answer = (await http.post(CHAT, json=chat(tools=[WEATHER, CLOCK]))).json()
    choice = answer["choices"][0]
    assert choice["finish_reason"] == "tool_calls"
    call = choice["message"]["tool_calls"][0]["function"]
    assert call["name"] == "weather"
    assert json.loads(call["arguments"]) == {
        "city": "sea", "days": 2, "unit": "celsius", "places": [{"lat": 1}],
    }  # fmt: skip


async def test_a_streamed_tool_call_adds_up_to_the_same(http):
    plain = (await http.post(CHAT, json=chat(tools=[WEATHER]))).json()
    frames = (await stream(http, chat(tools=[WEATHER])))[:-1]
    deltas = [c for f in frames for c in f["choices"][0]["delta"].get("tool_calls", ())]
    arguments = "".join(delta["function"]["arguments"] for delta in deltas)
    expected = plain["choices"][0]["message"]["tool_calls"][0]
    assert (deltas[0]["id"], deltas[0]["function"]["name"]) == (expected["id"], "weather")
    assert arguments == expected["function"]["arguments"]
    assert frames[-1]["choices"][0]["finish_reason"] == "tool_calls"


async def test_tool_choice_decides(http):
    async def called(**fields: object) -> str | None:
        answer = (await http.post(CHAT, json=chat(tools=[WEATHER, CLOCK], **fields))).json()
        calls = answer["choices"][0]["message"].get("tool_calls")
        return calls[0]["function"]["name"] if calls else None

    forced = {"type": "function", "function": {"name": "clock"}}
    assert await called(tool_choice="none") is None
    assert await called(tool_choice="required") == "weather"
    assert await called(tool_choice=forced) == "clock"


async def test_after_a_tool_has_answered_comes_prose(http):
    messages = [{"role": "user", "content": "?"}, {"role": "tool", "content": "4 degrees"}]
    body = chat(tools=[WEATHER]) | {"messages": messages}
    answer = (await http.post(CHAT, json=body)).json()
    assert answer["choices"][0]["message"]["content"]


async def test_an_image_counts_a_fixed_number_of_tokens(http, engine):
    def body(*parts: dict[str, object]) -> dict[str, object]:
        return {"messages": [{"role": "user", "content": [{"type": "text", "text": "?"}, *parts]}]}

    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}}
    counts = [
        (await http.post(CHAT, json=body(*[image] * n))).json()["usage"]["prompt_tokens"]
        for n in (0, 1, 2)
    ]
    tokens = engine.app.options.profile.image_tokens
    assert [counts[1] - counts[0], counts[2] - counts[1]] == [tokens, tokens]


async def test_completions_take_many_prompts_as_text_or_ids(http):
    ids = (await http.post("/tokenize", json={"prompt": "Sea and sky"})).json()["tokens"]
    cases = [("Sea", 1, 1), (["Sea", "Sky"], 2, 2), (ids, 3, 1), ([ids, ids], 6, 2)]
    for prompt, prompt_tokens, choices in cases:
        body = {"prompt": prompt, "max_tokens": 4, "ignore_eos": True}
        answer = (await http.post("/v1/completions", json=body)).json()
        assert [choice["index"] for choice in answer["choices"]] == list(range(choices))
        assert answer["usage"]["prompt_tokens"] == prompt_tokens
        assert answer["usage"]["completion_tokens"] == 4 * choices


async def test_completions_stream_text(http):
    body = {"prompt": "Sea", "max_tokens": 3, "ignore_eos": True}
    plain = (await http.post("/v1/completions", json=body)).json()
    frames = await stream(http, body, "/v1/completions")
    assert "".join(f["choices"][0]["text"] for f in frames[:-1]) == plain["choices"][0]["text"]


async def test_a_prompt_seen_before_is_cached_and_salts_keep_apart(http):
    async def cached(**fields: object) -> int:
        told = await usage(http, text="The sea is wide and the sky is far. " * 30, **fields)
        return int(told["prompt_tokens_details"]["cached_tokens"])

    assert await cached() == 0
    assert await cached() > 200
    assert await cached(cache_salt="a") == 0
    assert await cached(cache_salt="a") > 200
    assert await cached(cache_salt="b") == 0


async def test_detokenize_gives_the_text_back(http):
    text = "Größe, 海, and the sea"
    tokens = (await http.post("/tokenize", json={"prompt": text})).json()["tokens"]
    assert (await http.post("/detokenize", json={"tokens": tokens})).json() == {"prompt": text}


async def test_it_says_that_it_is_simulated(http):
    models = (await http.get("/v1/models")).json()["data"]
    assert [(m["id"], m["owned_by"]) for m in models] == [("demo-chat", "simulated")]
    assert "simulated" in (await http.get("/version")).json()["version"]
    assert (await http.get("/health")).content == b""
    assert (await http.get("/load")).json() == {"server_load": 0}


@pytest.mark.parametrize("words", ["in=10,out=20", "in=10,out=20,cached=4"])
async def test_a_script_fixes_the_usage(http, engine, words):
    engine.script(words)
    told = await usage(http, max_tokens=5)
    assert (told["prompt_tokens"], told["completion_tokens"]) == (10, 20)
    assert told["prompt_tokens_details"]["cached_tokens"] == (4 if "cached" in words else 0)
    body = chat(stream_options={"include_usage": True})
    assert (await stream(http, body))[-2]["usage"]["total_tokens"] == 30


async def test_an_answer_may_be_empty(http, engine):
    engine.script("out=0")
    frames = await stream(http, chat(stream_options={"include_usage": True}))
    assert said(frames) == ""
    assert frames[-2]["usage"]["completion_tokens"] == 0
    assert (await http.post(CHAT, json=chat())).json()["choices"][0]["message"]["content"] == ""


def test_events_are_read_as_the_tests_think():
    assert events('data: {"a":1}\n\ndata: [DONE]\n\n') == [{"a": 1}, "[DONE]"]
