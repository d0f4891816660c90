"""How a network splits a stream changes neither what the caller gets nor what is counted."""

import json
from itertools import pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gateway.wire import sse
from gateway.wire.stream import StreamMeter
from tests.unit.wire.frames import DONE, counts, event, finish, frame, meter, role, token, usage

texts = st.text(st.characters(codec="utf-8"), max_size=6) | st.sampled_from(
    [
        "usage",
        "error",
        '""',
        "{}",
        "[DONE]",
        '"usage":{"a":1}}',
        "\n\n",
        "data: {",
        "\\",
        '\\"',
        "}",
    ]
)
usages = st.none() | st.builds(counts, st.integers(0, 50), st.integers(0, 50))
indexes = st.integers(0, 1)
ends = st.sampled_from([b"\n", b"\r\n"])


@st.composite
def deltas(draw: st.DrawFn) -> dict[str, Any]:
    name = draw(st.sampled_from(["content", "reasoning_content", "refusal"]))
    return {name: draw(texts)}


@st.composite
def frames(draw: st.DrawFn) -> bytes:
    reason = draw(st.sampled_from([None, None, None, "stop", "length"]))
    body = frame(draw(deltas()), reason, draw(indexes))
    if draw(st.booleans()):
        body["usage"] = draw(usages)
    return event(body, draw(ends))


others = st.sampled_from(
    [b": ping\n\n", b"\n\n", b": ping\r\n\r\n", b"data: odd\n\n", role(0), role(1), DONE]
) | st.builds(usage, st.integers(0, 50), st.integers(0, 50))
similar = st.builds(lambda text, n: token(text) * n, texts, st.integers(1, 4))
with_usage = st.builds(lambda text, n: token(text, usage=counts(5, n)), texts, st.integers(0, 9))
streams = st.lists(frames() | others | similar | with_usage, max_size=12).map(b"".join)
settings = st.fixed_dictionaries(
    {
        "kind": st.sampled_from(["vllm", "llamacpp", "openai"]),
        "asked": st.booleans(),
        "asked_running": st.booleans(),
        "expected": st.integers(1, 2),
    }
)


def seen(metered: StreamMeter, chunks: list[bytes]) -> tuple[Any, ...]:
    shown = b"".join(map(metered.feed, chunks))
    rest, complete = metered.finish()
    return (
        shown + rest,
        complete,
        metered.tokens,
        metered.usage,
        metered.usage_is_final,
        metered.finish_reasons,
        metered.done,
        metered.first_content_seen,
    )


def until_done(stream: bytes) -> bytes:
    before, done, _ = stream.partition(DONE)
    return before + done


def split(stream: bytes, places: list[int]) -> list[bytes]:
    cuts = sorted({0, len(stream), *(place % (len(stream) + 1) for place in places)})
    return [stream[a:b] for a, b in pairwise(cuts)]


@given(streams, settings, st.lists(st.integers(0, 10_000), max_size=12))
def test_any_split_gives_the_same(stream: bytes, given: dict[str, Any], places: list[int]) -> None:
    whole = seen(meter(**given), [stream])
    assert seen(meter(**given), split(stream, places)) == whole
    assert seen(meter(**given), [stream[i : i + 1] for i in range(len(stream))]) == whole


@given(streams, settings, st.integers(0, 10_000))
def test_a_break_anywhere_shows_whole_events_only(
    stream: bytes, given: dict[str, Any], place: int
) -> None:
    metered = meter(**given)
    shown = metered.feed(stream[: place % (len(stream) + 1)])
    shown += metered.finish().rest
    assert shown == b"" or shown.endswith((b"\n\n", b"\r\n\r\n", b"\n\r\n"))
    whole = meter(**given)
    everything = whole.feed(stream)
    # The end of a last event may be written for it, in LF.
    assert everything.replace(b"\r", b"").startswith(shown.replace(b"\r", b""))


@given(streams, settings)
def test_usage_is_hidden_if_and_only_if_it_was_not_asked_for(
    stream: bytes, given: dict[str, Any]
) -> None:
    shown = meter(**given).feed(stream)
    stream = until_done(stream)
    sent = [frame for frame in parsed(stream) if isinstance(frame.get("usage"), dict)]
    told = [frame for frame in parsed(shown) if isinstance(frame.get("usage"), dict)]
    if not given["asked"]:
        assert told == []
    elif given["asked_running"] or given["kind"] != "vllm":
        assert told == sent
    else:
        assert [f for f in told if not f["choices"]] == [f for f in sent if not f["choices"]]


@given(streams, settings)
def test_nothing_but_usage_is_ever_taken_away(stream: bytes, given: dict[str, Any]) -> None:
    """Until `[DONE]`; what comes after it never passes."""
    shown = meter(**given).feed(stream)
    stream = until_done(stream)
    assert bare(parsed(shown)) == bare(parsed(stream))
    assert shown.count(b": ping") == stream.count(b": ping")
    assert shown.count(DONE) == stream.count(DONE)


@given(st.lists(deltas(), max_size=20))
def test_the_count_is_a_floor_of_the_frames_that_say_something(said: list[dict[str, Any]]) -> None:
    metered = meter()
    metered.feed(b"".join(event(frame(delta)) for delta in said) + finish() + DONE)
    assert metered.tokens == sum(1 for delta in said if any(delta.values()))


@given(st.lists(st.binary(max_size=40) | streams, max_size=6))
def test_no_bytes_raise(chunks: list[bytes]) -> None:
    metered = meter()
    for chunk in chunks:
        metered.feed(chunk)
    metered.finish()
    assert metered.tokens >= 0


@given(st.lists(st.sampled_from([b"a", b"\n", b"\r", b"\n\n", b"\r\n\r\n", b"data: b"])))
def test_splitting_loses_and_adds_nothing(pieces: list[bytes]) -> None:
    splitter = sse.Splitter()
    events = [event for piece in pieces for event in splitter.feed(piece)]
    assert b"".join(events) + splitter.rest() == b"".join(pieces)
    assert events == sse.Splitter().feed(b"".join(pieces))


def parsed(stream: bytes) -> list[dict[str, Any]]:
    found = []
    for one in sse.Splitter().feed(stream):
        data = sse.data_of(one)
        if data is not None and data.startswith(b"{"):
            found.append(json.loads(data))
    return found


def bare(frames: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Frames that say something besides usage, without it."""
    kept = [{k: v for k, v in one.items() if k != "usage" or v is None} for one in frames]
    return [one for one in kept if one.get("choices")]
