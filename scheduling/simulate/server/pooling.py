"""Embeddings, rerank and score: simulated vectors and scores, real load on the simulated engine.

A vector depends on nothing but its text; a score says how many words two texts share.
"""

from __future__ import annotations

import struct
from base64 import b64encode
from math import sqrt
from typing import Any, Literal

import msgspec

from scheduling.simulate import text
from scheduling.simulate.server import prompt as prompts
from scheduling.simulate.server.call import Call
from scheduling.simulate.server.errors import bad_request
from scheduling.simulate.server.prompt import Prompt
from scheduling.simulate.server.wire import Common, Number

DIMENSIONS = 32
MOST_DIMENSIONS = 4096

Side = str | list[str]


class EmbeddingRequest(Common, kw_only=True):
    input: str | list[str | Number | list[Number]]
    dimensions: Number | None = None
    encoding_format: Literal["float", "base64"] = "float"


class RerankRequest(Common, kw_only=True):
    query: str
    documents: list[str]
    top_n: Number | None = None


class ScoreRequest(Common, kw_only=True):
    text_1: Side
    text_2: Side


def embedding_prompts(asked: EmbeddingRequest) -> list[Prompt]:
    if asked.dimensions is not None and not 1 <= asked.dimensions <= MOST_DIMENSIONS:
        raise bad_request(f"dimensions must be from 1 to {MOST_DIMENSIONS}.", "dimensions")
    return prompts.each(asked.input)


def pairs(asked: RerankRequest | ScoreRequest) -> list[tuple[str, str]]:
    if isinstance(asked, RerankRequest):
        return [(asked.query, document) for document in asked.documents]
    ones, others = _listed(asked.text_1), _listed(asked.text_2)
    if len(ones) == 1:
        ones = ones * len(others)
    if len(ones) != len(others):
        raise bad_request("text_1 must be one text, or as many as text_2.", "text_1")
    return list(zip(ones, others, strict=True))


def pair_prompts(asked: RerankRequest | ScoreRequest) -> list[Prompt]:
    return [prompts.of_text(one + other) for one, other in pairs(asked)]


def embeddings_body(call: Call, asked: EmbeddingRequest) -> bytes:
    size = asked.dimensions or DIMENSIONS
    vectors = [_vector(prompt.data, size) for prompt in embedding_prompts(asked)]
    data = [
        {"object": "embedding", "index": i, "embedding": _encoded(vector, asked.encoding_format)}
        for i, vector in enumerate(vectors)
    ]
    return _body(call, object="list", data=data)


def rerank_body(call: Call, asked: RerankRequest) -> bytes:
    scores = [score(*pair) for pair in pairs(asked)]
    best = sorted(range(len(scores)), key=lambda i: -scores[i])[: asked.top_n]
    results = [
        {"index": i, "document": {"text": asked.documents[i]}, "relevance_score": scores[i]}
        for i in best
    ]
    return _body(call, results=results)


def score_body(call: Call, asked: ScoreRequest) -> bytes:
    data = [
        {"index": i, "object": "score", "score": score(*pair)}
        for i, pair in enumerate(pairs(asked))
    ]
    return _body(call, object="list", data=data)


def score(one: str, other: str) -> float:
    left, right = set(one.lower().split()), set(other.lower().split())
    return round(len(left & right) / (len(left | right) or 1), 6)


def _body(call: Call, **more: Any) -> bytes:
    answer = {"id": call.id, "created": call.created, "model": call.model, **more}
    if call.script.usage:
        answer["usage"] = call.usage()
    return msgspec.json.encode(answer)


def _vector(data: bytes, size: int) -> list[float]:
    drawn = [text.digest(data, number) / 2**63 - 1 for number in range(size)]
    length = sqrt(sum(value * value for value in drawn)) or 1.0
    return [value / length for value in drawn]


def _encoded(vector: list[float], form: str) -> list[float] | str:
    if form == "float":
        return vector
    return b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode()


def _listed(side: Side) -> list[str]:
    return [side] if isinstance(side, str) else side
