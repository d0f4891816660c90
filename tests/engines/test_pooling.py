"""Engines that read and generate nothing: embeddings; rerank and score where it has them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.acceptance.gateway.rig import Rig
from tests.engines.asking import recorded, told
from tests.engines.process import RealEngine, llamacpp, started, vllm
from tests.engines.rig import POOLS, rig

OPTIONS: dict[str, tuple[Callable[..., RealEngine], tuple[str, ...]]] = {
    "vllm": (vllm, ("--runner", "pooling", "--convert", "embed")),
    "llamacpp": (llamacpp, ("--embeddings", "--pooling", "mean")),
}
TEXTS = ["The gateway asks an engine.", "Every tenant has a share of it."]
ASKED: list[tuple[str, dict[str, Any]]] = [
    ("/v1/embeddings", {"input": TEXTS}),
    ("/v1/rerank", {"query": "Who asks?", "documents": TEXTS}),
    ("/v1/score", {"text_1": "Who asks?", "text_2": TEXTS}),
]


@pytest.fixture(scope="module", params=list(OPTIONS))
def reader(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RealEngine]:
    make, options = OPTIONS[request.param]
    folder = tmp_path_factory.mktemp(f"{request.param}-reader")
    with started(make(folder, list(POOLS), *options)) as running:
        yield running


@pytest.fixture(scope="module")
def reading(reader: RealEngine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    with rig(tmp_path_factory.mktemp("reading"), reader) as running:
        yield running


@pytest.mark.parametrize(("path", "asked"), ASKED)
def test_what_is_read_is_charged_as_its_engine_counts_it(
    reading: Rig, reader: RealEngine, path: str, asked: dict[str, Any]
) -> None:
    if reader.kind == "llamacpp" and path != "/v1/embeddings":
        pytest.skip("its model has no head for this")
    alice = reading.tenant(model="real")
    answer = alice.start(path, **asked).answer()
    assert answer.status == 200, answer.body
    alone = reader.post(path, model="real", **asked)["usage"]
    row = reading.record(answer)
    assert row["prompt_tokens"] == answer.json["usage"]["total_tokens"] == alone["total_tokens"]
    assert (row["completion_tokens"], row["usage_source"]) == (0, "engine")


def test_a_chat_there_costs_what_the_engine_made_of_it(reading: Rig, reader: RealEngine) -> None:
    """vLLM refuses it; llama.cpp's server generates there too."""
    alice = reading.tenant(model="real")
    answer = alice.chat(max_tokens=3)
    if reader.kind == "llamacpp":
        assert answer.status == 200, answer.body
        assert recorded(reading.record(answer)) == told(answer)
    else:
        assert answer.status in (400, 502), answer.body
        assert reading.record(answer)["cost"] == 0
