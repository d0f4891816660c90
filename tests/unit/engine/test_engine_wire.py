"""Whatever a body holds, it is either taken or refused with an error of the engine's own."""

from __future__ import annotations

import contextlib
import json

from hypothesis import given
from hypothesis import strategies as st

from scheduling.simulate.profile import load
from scheduling.simulate.server import wire
from scheduling.simulate.server.compose import Arrival, Composer
from scheduling.simulate.server.errors import ApiError
from scheduling.simulate.server.faults import BEHAVE

ANY = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 70_000) | st.floats() | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner),
    max_leaves=8,
)
PARTS = st.fixed_dictionaries({"type": st.sampled_from(["text", "image_url", "x"])}, optional={"text": ANY})  # noqa: E501 # fmt: skip
MESSAGES = st.lists(
    st.fixed_dictionaries(
        {"role": st.sampled_from(["user", "tool", "x"])},
        optional={"content": st.text(max_size=9) | st.lists(PARTS, max_size=2) | ANY},
    ),
    max_size=3,
)
FUNCTIONS = st.fixed_dictionaries({"name": st.just("f")}, optional={"parameters": ANY})
FIELDS: dict[str, st.SearchStrategy] = {
    "model": st.sampled_from(["m", "other"]) | ANY,
    "n": st.integers(-1, 3) | ANY,
    "max_tokens": st.integers(-1, 40_000) | ANY,
    "max_completion_tokens": st.integers(-1, 40_000),
    "stream": st.booleans() | ANY,
    "stream_options": ANY,
    "tools": st.lists(st.fixed_dictionaries({"function": FUNCTIONS}), max_size=2) | ANY,
    "tool_choice": st.sampled_from(["auto", "none", "required"]) | ANY,
    "min_tokens": ANY,
    "cache_salt": ANY,
    "priority": ANY,
    "seed": ANY,
}
COMPOSER = Composer(load("fast"), ("m",), seed=0)
ARRIVAL = Arrival(at=0.0, priority=0, request_id=None, script=BEHAVE)


@given(st.fixed_dictionaries({"messages": MESSAGES | ANY}, optional=FIELDS))
def test_chat(body):
    with contextlib.suppress(ApiError):
        asked = wire.read(wire.ChatRequest, "application/json", json.dumps(body).encode())
        call = COMPOSER.chat(asked, ARRIVAL)
        assert all(answer.length >= 1 for answer in call.answers)


@given(st.fixed_dictionaries({"prompt": ANY}, optional=FIELDS))
def test_completions(body):
    with contextlib.suppress(ApiError):
        asked = wire.read(wire.CompletionRequest, "application/json", json.dumps(body).encode())
        call = COMPOSER.completion(asked, ARRIVAL)
        assert len(call.answers) == len(call.parts) * (asked.n or 1)


@given(st.binary(max_size=40))
def test_bytes(body):
    with contextlib.suppress(ApiError):
        wire.read(wire.ChatRequest, "application/json", body)


@given(st.text(max_size=24) | st.integers().map(str))
def test_priority_header(header):
    with contextlib.suppress(ApiError):
        assert isinstance(wire.priority_of(wire.Common(priority=3), header), int)
