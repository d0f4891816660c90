"""What a call came to: told by the engine, counted, or estimated; once, and only to who asked."""

from __future__ import annotations

from typing import Any

import pytest

from tests.acceptance.gateway.caller import Answer
from tests.acceptance.gateway.rig import Rig


def used(row: dict[str, Any]) -> tuple[int, int, int]:
    return row["prompt_tokens"], row["cached_tokens"], row["completion_tokens"]


def shown(answer: Answer) -> list[dict[str, Any]]:
    return [event["usage"] for event in answer.events if event.get("usage")]


@pytest.mark.parametrize("model", ["chat", "plain"])
def test_the_gateway_asks_for_usage_and_shows_it_only_to_who_asked(rig: Rig, model: str) -> None:
    """D03."""
    alice = rig.tenant()
    rig.engine.script("in=12,out=34")
    silent = alice.chat(model=model, stream=True)
    assert silent.done
    assert shown(silent) == []
    assert all(event["choices"] for event in silent.events)
    asked = alice.chat(model=model, stream=True, stream_options={"include_usage": True})
    assert asked.done
    [usage] = shown(asked)
    assert (usage["prompt_tokens"], usage["completion_tokens"]) == (12, 34)
    for answer in (silent, asked):
        row = rig.record(answer)
        assert used(row) == (12, 0, 34)
        assert (row["usage_source"], row["cost"], row["status"]) == ("engine", 46, 200)


@pytest.mark.parametrize("model", ["chat", "plain"])
def test_usage_on_every_chunk_counts_once(rig: Rig, model: str) -> None:
    """D13."""
    alice = rig.tenant()
    rig.engine.script("in=10,out=20,usage-every-chunk")
    answer = alice.chat(model=model, stream=True)
    assert answer.done
    assert shown(answer) == []
    assert rig.record(answer)["cost"] == 30
    rig.records(alice.tenant, 1)


def test_a_stream_without_usage_is_counted(rig: Rig) -> None:
    alice = rig.tenant()
    rig.engine.script("out=25,nousage,gap=1ms")
    row = rig.record(alice.chat(stream=True))
    assert (row["usage_source"], row["completion_tokens"]) == ("counted", 25)
    assert row["prompt_tokens"] >= 1
    assert (row["status"], row["finish_reason"]) == (200, "stop")


def test_cached_tokens_are_part_of_the_prompt_and_cost_their_own(rig: Rig) -> None:
    model = rig.pool(cost={"input": 4, "cached_input": 1, "output": 10})
    alice = rig.tenant(model=model)
    rig.engine.script("in=20,cached=15,out=3")
    for stream in (False, True):
        row = rig.record(alice.chat(stream=stream))
        assert used(row) == (20, 15, 3)
        assert row["cost"] == 4 * 5 + 1 * 15 + 10 * 3


@pytest.mark.parametrize("stream", [False, True])
def test_several_choices_are_all_counted(rig: Rig, stream: bool) -> None:
    alice = rig.tenant()
    rig.engine.script("in=10,out=7")
    answer = alice.chat(stream=stream, n=3)
    choices = answer.events if stream else [answer.json]
    assert {c["index"] for event in choices for c in event["choices"]} == {0, 1, 2}
    assert used(rig.record(answer)) == (10, 0, 21)


def test_an_answer_of_one_token_and_one_far_past_the_estimate(rig: Rig) -> None:
    alice = rig.tenant(model=rig.pool())
    for words, completion in (("in=3,out=1", 1), ("in=3,out=1000", 1000)):
        rig.engine.script(words)
        for stream in (False, True):
            row = rig.record(alice.chat(stream=stream))
            assert used(row) == (3, 0, completion)
            assert row["cost"] == 3 + completion


def test_completions_are_metered_alike(rig: Rig) -> None:
    alice = rig.tenant()
    rig.engine.script("in=9,out=6")
    for stream in (False, True):
        answer = alice.start("/v1/completions", prompt="Once upon", stream=stream).answer()
        assert answer.status == 200
        assert used(rig.record(answer)) == (9, 0, 6)


def test_lengths_and_times_make_sense(rig: Rig) -> None:
    alice = rig.tenant({"name": "bot"})
    rig.engine.script("in=9,out=6")
    answer = alice.chat({"X-Fairlane-Interaction": "turn-1"}, stream=True, max_tokens=6)
    row = rig.record(answer)
    assert 0 <= row["queue_ms"] <= row["ttft_ms"] <= row["e2e_ms"]
    assert (row["application"], row["key"]) == ("bot", alice.key_id)
    assert (row["interaction"], row["finish_reason"]) == ("turn-1", "length")
    assert (row["lane"], row["endpoint"]) == ("normal", rig.engine.url)


def test_metrics_say_what_the_records_say(rig: Rig) -> None:
    alice = rig.tenant()
    rig.engine.script("in=9,cached=4,out=6")
    answers = [alice.chat(stream=number % 2 == 1) for number in range(4)]
    rig.engine.script("in=9,out=50,cut@5,gap=1ms")
    answers.append(alice.chat(stream=True))
    assert alice.chat(model="nothing").status == 404
    rows = rig.records(alice.tenant, len(answers) + 1)
    kinds = {
        "prompt": "prompt_tokens",
        "cached": "cached_tokens",
        "completion": "completion_tokens",
    }
    for kind, column in kinds.items():
        series = f'fairlane_tokens_total{{kind="{kind}",model="chat",tenant="{alice.tenant}"}}'
        assert rig.metric(series) == sum(row[column] for row in rows)
    units = f'fairlane_service_units_total{{lane="normal",model="chat",tenant="{alice.tenant}"}}'
    assert rig.metric(units) == sum(row["cost"] for row in rows)
    lines = [line for line in rig.metrics().splitlines() if f'tenant="{alice.tenant}"' in line]
    counted = [line for line in lines if line.startswith("fairlane_requests_total")]
    assert sum(float(line.rpartition(" ")[2]) for line in counted) == len(rows)
