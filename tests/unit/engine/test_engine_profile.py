"""Profiles: those shipped are good, and a bad one is refused with the field's name."""

from __future__ import annotations

import json

import pytest

from scheduling.simulate.engine import Engine
from scheduling.simulate.profile import ProfileError, load, shipped
from scheduling.simulate.sequence import Request
from tests.unit.engine.driving import Arrive, drive

GOOD = {
    "name": "mine",
    "max_num_seqs": 4,
    "max_num_batched_tokens": 64,
    "num_gpu_blocks": 100,
    "block_size": 16,
    "max_model_len": 1024,
    "step": {"base_ms": 5},
}


@pytest.mark.parametrize("name", shipped())
def test_shipped_profiles_load_under_their_own_name(name):
    assert load(name).name == name


def test_json_is_yaml_enough(tmp_path):
    path = tmp_path / "mine.json"
    path.write_text(json.dumps(GOOD))
    assert load(str(path)).max_num_seqs == 4


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"max_num_seqs": 0}, "max_num_seqs"),
        ({"max_num_seqs": "four"}, "max_num_seqs"),
        ({"max_num_seqs": 65}, "max_num_batched_tokens is 64"),
        ({"max_model_len": 1601}, "num_gpu_blocks is 100"),
        ({"step": {"base_ms": 0}}, "step.base_ms"),
        ({"step": {"base_ms": 1, "kv_token_ns": -1}}, "step.kv_token_ns"),
        ({"step": {"base_ms": float("inf")}}, "step.base_ms"),
        ({"step": {"base_ms": float("nan")}}, "step.base_ms"),
        ({"step": {}}, "base_ms"),
        ({"blocks": 3}, "blocks"),
        ({"output": {"spread": 9}}, "output.spread"),
    ],
)
def test_a_bad_field_is_named(tmp_path, change, named):
    path = tmp_path / "mine.yaml"
    path.write_text(json.dumps(GOOD | change).replace("Infinity", ".inf").replace("NaN", ".nan"))
    with pytest.raises(ProfileError, match=named) as refused:
        load(str(path))
    assert str(path) in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("text", ["", "- a", "name: [", "name: mine"])
def test_what_is_no_profile_is_refused(tmp_path, text):
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    with pytest.raises(ProfileError):
        load(str(path))


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(ProfileError, match="8b-h100"):
        load("9b-h100")


@pytest.mark.parametrize(
    ("name", "ttft", "between"),
    [("8b-h100", (0.060, 0.120), (0.010, 0.015)), ("70b-8xh100", (0.150, 0.250), (0.018, 0.028))],
)
def test_profiles_of_real_machines_keep_to_their_published_times(name, ttft, between):
    """Reference figures: llm-d-inference-sim, in /work/shared/design/engines.md section 3."""
    alone = drive(Engine(load(name)), [Arrive(0.0, Request("a", 1700, (2,)))]).sequences[0]
    assert ttft[0] <= alone.first_token_at <= ttft[1]
    engine = Engine(load(name))
    crowd = drive(engine, [Arrive(0.0, Request(f"r{i}", 700, (400,))) for i in range(64)])
    last = crowd.sequences[-1]
    each = (last.ended_at - last.first_token_at) / (last.generated - 1)
    assert between[0] <= each <= between[1]
