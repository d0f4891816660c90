"""Bodies and answers as nobody should send them: right ones of each route, and ways to spoil them.

The dice are always the same in `make test`; `make explore` throws new ones, and more often.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

from tests.acceptance.gateway.caller import CHAT
from tests.fuzz import MANY
from tests.unit.wire.frames import (
    DONE,
    STOPPED,
    begun,
    event,
    finish,
    role,
    said,
    token,
    told,
    typed,
    usage,
)

Dice = random.Random
Body = dict[str, Any]

MESSAGES = [{"role": "user", "content": "Hello"}]
TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {}}}]
FLAT_TOOLS = [{"type": "function", "name": "f", "parameters": {}}]
THEIR_TOOLS = [{"name": "f", "input_schema": {}}]
POLICYS: Body = {"priority": 1, "cache_salt": "s"}
STREAMED: Body = {"stream": True, "stream_options": {"include_usage": True}}
USAGE = {"prompt_tokens": 5, "completion_tokens": 3, "total_tokens": 8}
TYPED_USAGE = {"input_tokens": 5, "output_tokens": 3, "input_tokens_details": {"cached_tokens": 1}}
POOLED: Body = {"data": [{"index": 0, "embedding": [0.5, 1e-9]}], "usage": USAGE}

BODIES: dict[str, Body] = {
    CHAT: {"messages": MESSAGES, "max_tokens": 3, "n": 1, "tools": TOOLS, "stop": ["x"]}
    | STREAMED
    | POLICYS,
    "/v1/completions": {"prompt": "Hello", "suffix": "x", "max_tokens": 3, "n": 1, "best_of": 1}
    | STREAMED
    | POLICYS,
    "/v1/responses": {"input": "Hello", "instructions": "x", "max_output_tokens": 3}
    | {"stream": False, "store": True, "tools": FLAT_TOOLS, "previous_response_id": None},
    "/v1/messages": {"messages": MESSAGES, "system": "x", "max_tokens": 3, "stream": False}
    | {"tools": THEIR_TOOLS, "stop_sequences": ["x"], "metadata": {"user_id": "x"}},
    "/v1/embeddings": {"input": ["Hello", "x"], "dimensions": 3} | POLICYS,
    "/v1/rerank": {"query": "Hello", "documents": ["x", "y"], "top_n": 3} | POLICYS,
    "/v1/score": {"text_1": "Hello", "text_2": ["x"], "truncate_prompt_tokens": 3} | POLICYS,
    "/tokenize": {"prompt": "Hello", "add_special_tokens": True, "extra": 3},
}
LISTED = {  # a field that takes a list of parts
    CHAT: "messages",
    "/v1/completions": "prompt",
    "/v1/responses": "input",
    "/v1/messages": "messages",
    "/v1/embeddings": "input",
    "/v1/rerank": "documents",
    "/v1/score": "text_2",
    "/tokenize": "messages",
}
ANSWERS: dict[str, Body] = {
    CHAT: {"choices": [{"index": 0, "message": {"content": "Hi"}, "finish_reason": "stop"}]}
    | {"usage": USAGE},
    "/v1/completions": {"choices": [{"index": 0, "text": "Hi", "finish_reason": "stop"}]}
    | {"usage": USAGE},
    "/v1/responses": {"status": "completed", "output": [{"type": "message"}], "usage": TYPED_USAGE},
    "/v1/messages": {"content": [{"text": "Hi"}], "stop_reason": "end_turn", "usage": TYPED_USAGE},
    "/v1/embeddings": POOLED,
    "/v1/rerank": POOLED,
    "/v1/score": POOLED,
    "/tokenize": {"count": 5, "max_model_len": 100, "tokens": [1, 2, 3, 4, 5]},
}
TEXT = [event({"choices": [{"index": 0, "text": "x", "finish_reason": "stop"}]})]
STREAMS: dict[str, list[bytes]] = {
    CHAT: [role(), token(), token(), finish(), usage(5, 2), DONE],
    "/v1/completions": [*TEXT, usage(5, 1), DONE],
    "/v1/responses": [
        typed("response.output_text.delta", delta="x"),
        typed("response.completed", response={"status": "completed", "usage": TYPED_USAGE}),
    ],
    "/v1/messages": [begun(input_tokens=5), said(), told(output_tokens=1), STOPPED],
}
ODD: list[Any] = [
    *(None, True, False, 0, -1, 1, 2**31, 2**63, -(2**64), 1.5, 1e308),
    *("", " ", "x", "\x00", "é\U0001f600", "x" * 5000),
    *([], [[]], [None], {}, {"": None}, [{}], {"role": "user"}, [1, "a", None, {}]),
]
NUMBERS = [b"1e999", b"-0", b"NaN", b"Infinity", b"00", b"1" * 4000, b"1.", b"0x10"]


def dice() -> Dice:
    return Dice(20261129) if MANY == 1 else Dice()


# --- ways to spoil a right one, whoever sends it -----------------------------------------------


def odd_field(dice: Dice, good: Body) -> bytes:
    return json.dumps({**good, dice.choice(list(good)): dice.choice(ODD)}).encode()


def odd_inside(dice: Dice, good: Body) -> bytes:
    """In one of its objects or lists, however deep."""
    whole = json.loads(json.dumps(good))
    inner = dice.choice(list(holders(whole)))
    places = list(inner) if isinstance(inner, dict) else range(len(inner))
    if places:
        inner[dice.choice(places)] = dice.choice(ODD)
    return json.dumps(whole).encode()


def holders(value: Any) -> Any:
    if isinstance(value, dict | list):
        yield value
        for inner in value.values() if isinstance(value, dict) else value:
            yield from holders(inner)


def cut(dice: Dice, good: Body) -> bytes:
    whole = json.dumps(good).encode()
    return whole[: dice.randrange(len(whole))]


def flipped(dice: Dice, good: Body) -> bytes:
    return flip(dice, json.dumps(good).encode())


def flip(dice: Dice, data: bytes) -> bytes:
    whole = bytearray(data)
    for _ in range(dice.randint(1, 6)):
        whole[dice.randrange(len(whole))] = dice.randrange(256)
    return bytes(whole)


def noise(dice: Dice, good: Body) -> bytes:
    return dice.randbytes(dice.choice([0, 1, 7, 300]))


def deep(dice: Dice, good: Body) -> bytes:
    levels = dice.choice([50, 900, 5000, 100_000])
    opening, closing = dice.choice([(b"[", b"]"), (b'{"a":', b"}")])
    nested = opening * levels + b"1" + closing * levels
    return json.dumps(good).encode()[:-1] + b',"extra":' + nested + b"}"


def twice(dice: Dice, good: Body) -> bytes:
    again = json.dumps({dice.choice(list(good)): dice.choice(ODD)})[1:]
    return json.dumps(good).encode()[:-1] + b"," + again.encode()


def surrogates(dice: Dice, good: Body) -> bytes:
    lone = dice.choice([b"\\ud800", b"\\udfff\\ud800", b"\\u0000"])
    where = dice.choice([b"chat", b"user", b"Hello", b"stop", b"Hi"])
    return json.dumps(good).encode().replace(where, where + lone, 1)


def number(dice: Dice, good: Body) -> bytes:
    return json.dumps(good).encode().replace(b"3", dice.choice(NUMBERS), 1)


SPOILT: list[Callable[[Dice, Body], bytes]] = [
    *(odd_field, odd_field, odd_inside, odd_inside, cut, flipped, noise, deep, twice, surrogates),
    number,
]


def body(dice: Dice, path: str) -> bytes:
    """Of a call, with one thing wrong; or many, in the list that its prompt may be."""
    good = {"model": "chat", **BODIES[path]}
    if dice.random() < 0.1:
        parts = [odd_part(dice) for _ in range(dice.randint(1, 3))]
        return json.dumps({**good, LISTED[path]: parts}).encode()
    return dice.choice(SPOILT)(dice, good)


def odd_part(dice: Dice) -> Any:
    """A message, a part of one, a document, or none of these."""
    odd = dice.choice(ODD)
    image = {"type": "image_url", "image_url": odd}
    part = {"type": "text", "text": odd}
    message = {"role": "user", "content": dice.choice([[part, image], [odd], odd, "x"])}
    message[dice.choice(["role", "name", "tool_calls", "type"])] = dice.choice([odd, "user"])
    return dice.choice([message, part, odd, "x", 7])
