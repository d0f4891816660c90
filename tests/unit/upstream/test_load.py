"""What engines tell of their load, by each one's names, and what is made of it."""

from __future__ import annotations

import asyncio
import random

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.dialects import DIALECTS, LLAMACPP_METRICS, SGLANG_METRICS, VLLM_METRICS
from gateway.upstream.load import Load, read
from gateway.upstream.loads import LoadWatch
from tests.over_httpx import client_over
from tests.unit.gateway.cast import A, snapshot

VLLM = """# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="tiny"} 2.0
vllm:num_requests_waiting{engine="0",model_name="tiny"} 3.0
vllm:num_requests_waiting_by_reason{engine="0",model_name="tiny",reason="capacity"} 3.0
vllm:kv_cache_usage_perc{engine="0",model_name="tiny"} 0.25
vllm:num_preemptions_total{engine="0",model_name="tiny"} 1.0
vllm:prefix_cache_queries_total{engine="0",model_name="tiny"} 800.0
vllm:prefix_cache_hits_total{engine="0",model_name="tiny"} 256.0
"""
SGLANG = """sglang:num_running_reqs{model_name="m"} 5.0
sglang:num_queue_reqs{model_name="m"} 1.0
sglang:token_usage{model_name="m"} 0.5
sglang:cache_hit_rate{model_name="m"} 0.75
sglang:num_retracted_reqs{model_name="m"} 0.0
"""
LLAMACPP = """# TYPE llamacpp:requests_processing gauge
llamacpp:requests_processing 2
llamacpp:requests_deferred 4
llamacpp:prompt_tokens_total 1024
"""


def test_each_engine_is_read_by_its_own_names() -> None:
    assert read(VLLM, VLLM_METRICS) == Load(
        running=2, waiting=3, memory=0.25, preemptions=1, queries=800, hits=256
    )
    assert read(SGLANG, SGLANG_METRICS) == Load(
        running=5, waiting=1, memory=0.5, preemptions=0, hit_rate=0.75
    )
    assert read(LLAMACPP, LLAMACPP_METRICS) == Load(running=2, waiting=4)


def test_requests_of_several_ranks_add_up_and_the_fullest_memory_counts() -> None:
    second = VLLM.replace('engine="0"', 'engine="1"').replace("} 0.25", "} 0.75")
    load = read(VLLM + second.replace("# ", "## "), VLLM_METRICS)
    assert load is not None
    assert (load.running, load.waiting, load.memory) == (4, 6, 0.75)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "<html>not here</html>",
        "vllm:num_requests_running 1",
        "vllm:num_requests_running one\nvllm:num_requests_waiting 2",
        "vllm:num_requests_running NaN\nvllm:num_requests_waiting 2",
    ],
)
def test_what_does_not_tell_both_tells_nothing(text: str) -> None:
    assert read(text, VLLM_METRICS) is None


@given(st.text() | st.lists(st.sampled_from([*VLLM.splitlines(), "vllm:num_requests_running{"])))
def test_no_text_is_too_odd(text: str | list[str]) -> None:
    read(text if isinstance(text, str) else "\n".join(text), VLLM_METRICS)


def test_the_rate_of_hits_is_that_of_the_time_between() -> None:
    before = Load(running=0, waiting=0, queries=800, hits=256)
    now = Load(running=0, waiting=0, queries=1000, hits=406)
    assert now.found_since(before) == 0.75
    assert now.found_since(now) is None, "nothing was looked up"
    assert now.found_since(None) is None
    assert before.found_since(now) is None, "it was started anew"
    assert Load(running=0, waiting=0, hit_rate=0.5).found_since(None) == 0.5


@pytest.mark.parametrize(("kind", "pause_s"), [("vllm", 0.5), ("llamacpp", 2.5)])
async def test_an_engine_is_left_alone_for_as_long_as_it_needs(
    kind: str, pause_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """llama.cpp sees that a caller has gone only in a second in which nobody asks it anything."""
    pauses: asyncio.Queue[float] = asyncio.Queue()

    async def sleep(seconds: float) -> None:
        pauses.put_nowait(seconds)
        await asyncio.Event().wait()

    monkeypatch.setattr(asyncio, "sleep", sleep)
    monkeypatch.setattr(random, "uniform", lambda low, high: 1.0)
    told = httpx.MockTransport(lambda request: httpx.Response(200, text=VLLM + LLAMACPP))
    fields = {"engine": kind, "endpoints": [{"url": A}], "capacity": "auto"}
    watch = LoadWatch(client_over(told), lambda pool: [], Nowhere())
    watch.configure(snapshot(pool=fields, without=("org/code",)))
    assert await pauses.get() == pause_s
    await watch.aclose()


class Nowhere:
    """A scheduler that holds nothing."""

    def held(self, pool: str, endpoint: str) -> None: ...

    def set_capacity(self, pool: str, endpoint: str, max_running: int, max_load: float) -> None: ...


def test_only_kinds_that_tell_their_load_are_asked() -> None:
    silent = {kind for kind, dialect in DIALECTS.items() if not dialect.metrics}
    assert silent == {"llm-d", "openai"}
