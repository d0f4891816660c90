"""The rules of the engine model one by one, each on the smallest workload that shows it."""

from __future__ import annotations

import pytest

from scheduling.simulate.engine import UNTIL_CHANGE, Engine
from scheduling.simulate.profile import Profile, StepTime
from scheduling.simulate.sequence import Request, State
from tests.unit.engine.driving import Abort, Arrive, drive, profile


def ask(name: str, prompt: int = 4, output: int = 4, at: float = 0.0, **fields: object) -> Arrive:
    return Arrive(at, Request(name, prompt, (output,), at, **fields))  # type: ignore[arg-type]


def order(story, what="scheduled_at") -> list[str]:
    ended = [s for s in story.sequences if getattr(s, what) is not None]
    return [s.request.id for s in sorted(ended, key=lambda s: getattr(s, what))]


def one_place(**changes: object) -> Profile:
    return profile(max_num_seqs=1, **changes)


def test_a_step_lasts_what_the_profile_says_for_its_tokens():
    step = StepTime(base_ms=10, prefill_token_us=100, sequence_us=1000, kv_token_ns=1000)
    engine = Engine(profile(step=step))
    engine.add(Request("a", prompt_tokens=20, output_tokens=(2,)))
    first = engine.begin(0.0)
    assert first.end == pytest.approx(0.010 + 20 * 0.0001 + 0.001 + 20 * 0.000001)
    engine.end()
    second = engine.begin(first.end)
    assert second.end - first.end == pytest.approx(0.010 + 0.001 + 21 * 0.000001)


def test_the_first_token_comes_with_the_last_chunk_of_the_prompt():
    engine = Engine(profile(max_num_batched_tokens=8))
    story = drive(engine, [ask("a", prompt=20, output=3)])
    assert engine.totals.steps == 3 + 2
    assert story.sequences[0].first_token_at < story.sequences[0].ended_at


def test_decoding_goes_on_beside_a_long_prompt_and_takes_its_share_of_the_budget():
    engine = Engine(profile(max_num_batched_tokens=8))
    engine.add(Request("short", 4, (10,)))
    engine.begin(0.0)
    engine.end()
    engine.add(Request("long", 20, (1,)))
    step = engine.begin(1.0)
    assert [(s.request.id, count) for s, count in step.chunks] == [("long", 7)]
    engine.end()
    assert engine.sequences("short")[0].generated == 2


def test_by_priority_the_least_goes_first_and_equals_by_arrival():
    script = [
        ask("running", output=20),
        ask("late and urgent", at=0.2, priority=-1),
        ask("early", at=0.1),
        ask("later", at=0.15),
    ]
    story = drive(Engine(one_place()), script)
    assert order(story) == ["running", "late and urgent", "early", "later"]


def test_an_urgent_request_does_not_displace_a_running_one():
    script = [ask("running", output=20, priority=9), ask("urgent", at=0.1, priority=-9)]
    story = drive(Engine(one_place()), script)
    assert order(story, "ended_at") == ["running", "urgent"]
    assert not story.preempted


def test_fcfs_takes_no_notice_of_priority():
    script = [
        ask("running", output=20),
        ask("a", at=0.1, priority=5),
        ask("b", at=0.2, priority=-5),
    ]
    assert order(drive(Engine(one_place(), "fcfs"), script)) == ["running", "a", "b"]


def test_a_preempted_sequence_keeps_its_output_and_computes_its_kv_again():
    engine = Engine(profile(num_gpu_blocks=16, max_model_len=64))
    script = [ask("urgent", 20, 30, priority=0), ask("other", 20, 30, at=0.01, priority=1)]
    story = drive(engine, script)
    urgent, other = story.sequences
    assert (urgent.preemptions, other.preemptions) == (0, 1)
    assert (urgent.generated, other.generated) == (30, 30)
    assert engine.totals.generated == 60
    assert engine.totals.prompt == 40


def test_under_fcfs_the_last_to_arrive_is_preempted():
    engine = Engine(profile(num_gpu_blocks=16, max_model_len=64), "fcfs")
    script = [ask("first", 20, 30, priority=5), ask("second", 20, 30, at=0.01, priority=0)]
    assert [s.preemptions for s in drive(engine, script).sequences] == [0, 1]


def test_choices_of_one_request_share_its_prompt():
    engine = Engine(profile())
    blocks = tuple(range(5))
    engine.add(Request("a", prompt_tokens=20, output_tokens=(3, 3), blocks=blocks))
    engine.begin(0.0)
    assert [s.cached_tokens for s in engine.sequences("a")] == [0, 16]
    assert engine.kv.held == 5 + 1


def test_at_least_one_token_of_a_cached_prompt_is_computed():
    engine = Engine(profile())
    blocks = tuple(range(5))
    drive(engine, [ask("a", prompt=20, blocks=blocks)])
    again = drive(engine, [ask("b", prompt=20, blocks=blocks)])
    assert again.sequences[0].cached_tokens == 16


def test_the_cache_forgets_least_recently_used_first_and_the_tail_before_the_beginning():
    engine = Engine(profile(num_gpu_blocks=16, max_num_seqs=1))
    old, new = tuple(range(100, 106)), tuple(range(200, 206))
    drive(engine, [ask("old", 24, 1, blocks=old), ask("new", 24, 1, at=1.0, blocks=new)])
    drive(engine, [ask("third", 28, 1)])  # needs 7 blocks where 4 are blank
    assert engine.kv.match(new, 6) == 6
    assert engine.kv.match(old, 6) == 3


@pytest.mark.parametrize("at", [0.0, 0.001, 0.02, 0.3])
def test_an_abort_frees_everything_in_every_state(at):
    engine = Engine(profile(max_num_batched_tokens=8))
    script = [ask("a", 20, 40), ask("b", 20, 40), Abort(at, "a"), Abort(at, "b")]
    story = drive(engine, script)
    assert {s.state for s in story.sequences} == {State.ABORTED}
    assert (engine.running, engine.waiting, engine.kv.held) == (0, 0, 0)


def test_aborting_what_is_not_there_is_nothing():
    engine = Engine(profile())
    assert engine.abort("unknown", 0.0) == []


def test_a_request_longer_than_the_whole_cache_is_refused():
    engine = Engine(profile(num_gpu_blocks=16))
    with pytest.raises(ValueError, match="KV cache"):
        engine.add(Request("a", 60, (5,)))
    assert engine.waiting == 0


def test_an_id_that_is_here_already_is_refused():
    engine = Engine(profile())
    engine.add(Request("a", 4, (5,)))
    with pytest.raises(ValueError, match="already"):
        engine.add(Request("a", 4, (5,)))


def test_a_stretch_has_one_call_per_change_of_the_batch():
    engine = Engine(profile(num_gpu_blocks=1024, max_model_len=2048))
    story = drive(engine, [ask("a", 4, 1000), ask("b", 4, 600)], at_most=UNTIL_CHANGE)
    assert story.calls == 3  # both prompts; until b ends; until a ends
    assert engine.totals.steps == 1000


def test_nobody_joins_a_stretch_that_was_not_cut():
    engine = Engine(profile())
    engine.add(Request("a", 4, (20,)))
    engine.begin(0.0)
    now = engine.end().at
    engine.begin(now, UNTIL_CHANGE)
    with pytest.raises(RuntimeError, match="cut"):
        engine.add(Request("b", 4, (5,)))
    engine.cut(now + 0.001)
    engine.add(Request("b", 4, (5,)))


def test_progress_can_be_read_in_the_middle_of_a_stretch():
    engine = Engine(profile())
    (sequence,) = engine.add(Request("a", 4, (20,)))
    engine.begin(0.0)
    first = engine.end().at
    one = engine.begin(first).end - first
    engine.end()
    engine.begin(first + one, UNTIL_CHANGE)
    engine.cut(first + 5.5 * one)
    assert sequence.generated == 6
