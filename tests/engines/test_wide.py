"""An engine with more places than `capacity: auto` begins with, that serves in order of arrival."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.acceptance.gateway.caller import CHAT
from tests.acceptance.gateway.rig import Rig
from tests.acceptance.stack import until
from tests.engines.asking import body, endpoint
from tests.engines.noted import note
from tests.engines.process import RealEngine, llamacpp, started, vllm
from tests.engines.rig import POOLS, rig

PLACES = 24
FIRST = 16  # what `auto` begins with
LONG = {"vllm": 2000, "llamacpp": 450}  # tokens; a quiet machine makes 450 before all have begun


@pytest.fixture(scope="module", params=["vllm", "llamacpp"])
def wide(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RealEngine]:
    folder, names = tmp_path_factory.mktemp(f"{request.param}-wide"), list(POOLS)
    if request.param == "vllm":
        made = vllm(folder, names, "--max-num-seqs", str(PLACES))
    else:
        many = ("--parallel", str(PLACES), "--ctx-size", str(512 * PLACES))
        made = llamacpp(folder, names, *many)
    with started(made) as running:
        yield running


@pytest.fixture(scope="module")
def before(wide: RealEngine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    with rig(tmp_path_factory.mktemp("before"), wide) as running:
        yield running


def test_a_capacity_that_is_learnt_grows_to_what_the_engine_takes(
    before: Rig, wide: RealEngine
) -> None:
    alice = before.tenant(model="auto")
    until(lambda: endpoint(before, "auto").get("max_running") == FIRST, "it begins with 16")
    calls = [
        alice.start(**body(CHAT, "Go on.", LONG[wide.kind], stream=True)) for _ in range(PLACES * 2)
    ]
    try:
        until(lambda: endpoint(before, "auto")["max_running"] >= PLACES - 2, "it grows")
        found = endpoint(before, "auto")["max_running"]
        note(wide.kind, f"learnt capacity, {PLACES} places", found)
    finally:
        for call in calls:
            call.hang_up()
    wide.idle()


def test_an_engine_seen_to_serve_in_order_of_arrival_is_flagged(
    before: Rig, wide: RealEngine
) -> None:
    """vLLM's `fcfs` takes priorities and ignores them without a word."""
    if wide.kind != "vllm":
        pytest.skip("its kind says so")
    alice = before.tenant(model="real")
    holding = [
        alice.start(**body(CHAT, "Go on.", LONG[wide.kind], stream=True)) for _ in range(PLACES)
    ]
    until(lambda: wide.running() == PLACES, "all places are taken")
    batch, urgent = (
        [
            alice.start(headers={"X-Fairlane-Lane": lane}, **body(CHAT, "Me.", 4, stream=True))
            for _ in range(PLACES // 2)
        ]
        for lane in ("batch", "urgent")
    )
    until(lambda: wide.waiting() == PLACES, "the others wait in the engine")
    assert not endpoint(before, "real")["priority_ignored"]
    for call in [*holding, *batch, *urgent]:
        assert call.answer().status == 200
    until(lambda: endpoint(before, "real")["priority_ignored"], "it is flagged")
