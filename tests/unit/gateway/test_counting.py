"""How a prompt is counted before it waits: by a file, by an engine, and when not at all."""

from __future__ import annotations

import asyncio
import json
import threading
from pathlib import Path
from typing import Any

import httpx
import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace

from gateway import counting, tokenizer_files
from gateway.counting import ANSWER_TOKENS, FAR, INLINE_BYTES, MESSAGE_TOKENS
from gateway.estimates import MEDIA_TOKENS
from gateway.wire.prompt import of_chat, of_completion, texts_of_chat, texts_of_completion
from gateway.wire.request import parse
from tests.unit.gateway.cast import chat, snapshot, who
from tests.unit.gateway.world import World, whole

TEMPLATE = MESSAGE_TOKENS + ANSWER_TOKENS  # of one message
TIGHT = {"limits": {"max_input_tokens": 29}}
WORDS = [{"role": "user", "content": "one two three four five six seven"}]
PICTURE = {"type": "image_url", "image_url": {"url": "data:,"}}


@pytest.fixture
def words(tmp_path: Path) -> str:
    """A tokenizer to which each word is a token."""
    made = Tokenizer(WordLevel({"[UNK]": 0}, unk_token="[UNK]"))
    made.pre_tokenizer = Whitespace()
    made.save(str(tmp_path / "tokenizer.json"))
    return str(tmp_path / "tokenizer.json")


async def by_file(path: str, **alice: Any) -> World:
    pool = {"tokenizer": {"kind": "file", "path": path}}
    world = World(snapshot(alice=alice or TIGHT, pool=pool))
    if world.calls.counter.configure(world.calls.snapshot):
        await world.calls.counter.load(world.calls.snapshot)
    return world


def by_engine(**alice: Any) -> World:
    return World(snapshot(alice=alice or TIGHT, pool={"tokenizer": {"kind": "engine"}}))


def planned(world: World) -> int:
    """Prompt tokens that the latest call was admitted with."""
    return world.journal.entries[-1].prompt_tokens


def fault(world: World) -> str:
    counter, policy = world.calls.counter, world.calls.snapshot
    return counter.state(policy.pools["chat"])["fault"]


def counted(count: Any) -> httpx.Response:
    return httpx.Response(200, json={"count": count, "max_model_len": 4096, "tokens": []})


# --- by a file ------------------------------------------------------------------------------


async def test_a_file_counts_the_texts_and_adds_the_template(words: str) -> None:
    world = await by_file(words)
    await world.ask(messages=WORDS)
    assert planned(world) == 1 + 7 + TEMPLATE  # the role is a word, too
    assert fault(world) == ""


async def test_schemas_names_calls_and_pictures_are_counted_as_well(words: str) -> None:
    world = await by_file(words, limits={"max_input_tokens": 5000})
    call = {"name": "f", "arguments": "{}"}
    messages = [
        {"role": "user", "name": "al", "content": [{"type": "text", "text": "a b"}, PICTURE]},
        {"role": "assistant", "content": None, "function_call": call},
    ]
    await world.ask(messages=messages, tools=[{"type": "function"}])
    with_schema = planned(world)
    await world.ask(messages=messages)
    assert with_schema > planned(world) > 2 + 1 + 2 + MEDIA_TOKENS + 2 * MESSAGE_TOKENS
    assert fault(world) == ""


async def test_a_large_text_is_counted_off_the_event_loop(
    words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = await by_file(words)
    threads: list[str] = []

    def count(texts: list[str]) -> int:
        threads.append(threading.current_thread().name)
        return 3

    monkeypatch.setitem(world.calls.counter._files, words, count)
    for content in ("word " * 50, "word " * (INLINE_BYTES // 5 + 1)):
        await world.ask(messages=[{"role": "user", "content": content}])
    assert threads[0] == threading.main_thread().name
    assert threads[1].startswith("tokenizer")


async def test_a_count_past_the_input_limit_is_refused_where_the_estimate_was_not(
    words: str,
) -> None:
    world = await by_file(words, limits={"max_input_tokens": 30})
    short_words = [{"role": "user", "content": "a " * 40}]
    refused = await world.ask(messages=short_words)
    assert refused.error["code"] == "context_length_exceeded"
    assert "about 48 tokens" in refused.error["message"]
    assert (
        World(snapshot(alice={"limits": {"max_input_tokens": 30}})).estimates.prompt_tokens(
            "chat", chat(messages=short_words)
        )
        < 30
    )


@pytest.mark.parametrize("content", [None, "not json", '{"version": "1.0"}'])
async def test_without_a_readable_file_the_estimate_stands_in_and_it_is_told(
    tmp_path: Path, content: str | None
) -> None:
    path = tmp_path / "tokenizer.json"
    if content is not None:
        path.write_text(content)
    world = await by_file(str(path))
    assert (await world.ask()).status == 200
    assert planned(world) == world.estimates.prompt_tokens("chat", chat())
    assert str(path) in fault(world)
    assert world.calls.counter.configure(world.calls.snapshot)  # it may be there next time


async def test_what_could_be_read_without_end_is_not_read() -> None:
    world = await by_file("/dev/zero")
    assert (await world.ask()).status == 200
    assert fault(world) == "/dev/zero is no file of 256 MiB at most"


async def test_without_the_library_the_estimate_stands_in_and_it_is_told(
    words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr(tokenizer_files, "import_module", missing)
    world = await by_file(words)
    assert (await world.ask()).status == 200
    assert "pip install fairlane[tokenizers]" in fault(world)


async def test_a_pool_that_goes_back_to_estimates_has_no_fault_left(tmp_path: Path) -> None:
    world = await by_file(str(tmp_path / "missing"))
    assert fault(world)
    policy = snapshot(pool={"tokenizer": {"kind": "estimate"}}, alice=TIGHT)
    assert not world.calls.counter.configure(policy)
    await world.calls.counter.load(policy)
    assert world.calls.counter.state(policy.pools["chat"]) == {"kind": "estimate", "fault": ""}


async def test_a_file_that_no_pool_names_any_more_is_forgotten(words: str) -> None:
    world = await by_file(words)
    named = world.calls.snapshot
    assert not world.calls.counter.configure(named)
    assert not world.calls.counter.configure(snapshot(alice=TIGHT))
    assert world.calls.counter.configure(named)  # to be read anew


async def test_a_count_that_fails_is_an_estimate(
    words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = await by_file(words)

    def broken(texts: list[str]) -> int:
        raise RuntimeError("a panic")

    monkeypatch.setitem(world.calls.counter._files, words, broken)
    assert (await world.ask()).status == 200
    assert "a panic" in fault(world)


# --- by an engine ---------------------------------------------------------------------------


async def test_an_engine_is_asked_with_the_messages_and_its_count_holds() -> None:
    world = by_engine()
    tools = [{"type": "function", "function": {"name": "f"}}]
    await world.ask(counted(22), whole(), messages=WORDS, tools=tools, temperature=1)
    assert planned(world) == 22
    tokenize, complete = world.asked
    assert str(tokenize.url) == "http://engine-a/tokenize"
    assert json.loads(tokenize.content) == {
        "model": "chat",
        "messages": WORDS,
        "tools": tools,
        "add_generation_prompt": True,
    }
    assert complete.url.path == "/v1/chat/completions"


async def test_pictures_are_added_to_an_engines_count_of_the_text() -> None:
    world = by_engine(limits={"max_input_tokens": 5000})
    content = [{"type": "text", "text": "What?"}, PICTURE]
    await world.ask(counted(22), whole(), messages=[{"role": "user", "content": content}])
    assert planned(world) == 22 + MEDIA_TOKENS


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (httpx.Response(404, json={}), "HTTP 404"),
        (httpx.ConnectError("refused"), "could not be reached"),
        (counted("many"), "no count"),
        (counted(-1), "no count"),
        (httpx.Response(200, content=b"[]"), "no count"),
    ],
)
async def test_an_engine_that_cannot_count_is_left_alone_for_a_while(
    answer: Any, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = by_engine()
    await world.ask(answer, whole())
    assert planned(world) == world.estimates.prompt_tokens("chat", chat())
    assert why in fault(world)
    await world.ask(whole())
    assert [r.url.path for r in world.asked].count("/tokenize") == 1
    monkeypatch.setattr(counting, "RETRY_S", 0.0)
    world.calls.counter._retry_at.clear()
    await world.ask(counted(9), whole())
    assert (planned(world), fault(world)) == (9, "")


async def test_a_caller_that_hangs_up_while_it_is_counted_holds_nothing() -> None:
    world = by_engine()
    counting_now = asyncio.Event()

    async def slow(_: httpx.Request) -> httpx.Response:
        counting_now.set()
        await asyncio.Event().wait()
        raise AssertionError

    caller = world.call(slow)
    await counting_now.wait()
    caller.hang_up()
    await caller.end()
    assert (world.record.status, world.record.cost) == (499, 0)
    assert world.is_empty


async def test_who_is_suspended_while_it_is_counted_is_refused() -> None:
    world = by_engine()

    async def suspend(_: httpx.Request) -> httpx.Response:
        world.calls.snapshot = snapshot(alice={"enabled": False}, revision=2)
        return counted(9)

    assert (await world.ask(suspend)).error["code"] == "tenant_suspended"
    assert world.record.policy_revision == 2


# --- when it is not worth it ------------------------------------------------------------------

BUDGET = {"name": "b", "kind": "sustained", "period": "day"}
ABOUT = 10  # tokens, in the calls below


@pytest.mark.parametrize(
    ("alice", "far"),
    [
        ({}, True),
        ({"limits": {"max_input_tokens": FAR * ABOUT}}, True),
        ({"limits": {"max_input_tokens": FAR * ABOUT - 1}}, False),
        ({"limits": {"tokens_per_minute": FAR * ABOUT}}, True),
        ({"limits": {"tokens_per_minute": FAR * ABOUT - 1}}, False),
        ({"limits": {"requests_per_minute": 1}}, True),
        ({"budgets": [{**BUDGET, "cost": FAR * ABOUT}]}, True),
        ({"budgets": [{**BUDGET, "cost": FAR * ABOUT - 1}]}, False),
    ],
)
def test_only_what_could_change_something_is_counted(alice: dict[str, Any], far: bool) -> None:
    policy = snapshot(alice=alice)
    assert counting.far_below(ABOUT, policy.pools["chat"], who(policy)) is far


async def test_a_call_far_below_every_limit_asks_no_engine() -> None:
    world = by_engine(limits={"max_input_tokens": 100_000})
    await world.ask()
    assert [request.url.path for request in world.asked] == ["/v1/chat/completions"]


# --- the texts ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "body",
    [
        {"messages": [{"role": "user", "content": "häλlo"}]},
        {"messages": [{"role": "tool", "content": ["a", {"text": "b"}], "tool_call_id": "x"}]},
        {
            "messages": [{"role": "assistant", "content": None, "tool_calls": [{"id": "1"}]}],
            "tools": [{"type": "function"}],
        },
    ],
)
def test_the_texts_of_a_chat_are_those_whose_bytes_are_counted(body: dict[str, Any]) -> None:
    size = sum(len(text.encode()) for text in texts_of_chat(body))
    assert size == of_chat(body).text_bytes


@pytest.mark.parametrize("given", ["one", ["one", "two"], [1, 2], [[1], [2]]])
def test_the_texts_of_a_completion_are_those_whose_bytes_are_counted(given: Any) -> None:
    body = {"prompt": given, "suffix": "end"}
    size = sum(len(text.encode()) for text in texts_of_completion(body))
    assert size == of_completion(body).text_bytes


async def test_token_arrays_need_no_counting() -> None:
    world = by_engine(limits={"max_input_tokens": 5})
    call = parse("completions", b'{"model": "chat", "prompt": [1, 2, 3]}')
    policy = world.calls.snapshot
    counter = world.calls.counter
    assert await counter.count(policy.pools["chat"], who(policy), call, 3) == 3
    assert world.asked == []
