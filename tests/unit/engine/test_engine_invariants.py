"""What holds for every workload: the numbered invariants of scheduling/simulate/engine.py."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from scheduling.simulate.engine import UNTIL_CHANGE, Engine, Policy
from scheduling.simulate.sequence import Request, State
from tests.unit.engine.driving import Abort, Arrive, drive, profile

ticks = st.integers(0, 4096).map(lambda n: n / 1024)  # exact in binary, as the step times are
families = st.integers(0, 3)  # prompts of one family share their beginning


@st.composite
def scripts(draw: st.DrawFn) -> list[Arrive | Abort]:
    script: list[Arrive | Abort] = []
    for number in range(draw(st.integers(1, 12))):
        at, prompt = draw(ticks), draw(st.integers(1, 40))
        family = draw(families)
        request = Request(
            id=f"r{number}",
            prompt_tokens=prompt,
            output_tokens=tuple(draw(st.lists(st.integers(0, 24), min_size=1, max_size=3))),
            arrival=at,
            priority=draw(st.integers(-2, 2)),
            blocks=tuple(hash((family, i)) for i in range(prompt // 4)) if family else (),
        )
        script.append(Arrive(at, request))
        if draw(st.integers(0, 3)) == 0:
            script.append(Abort(at + draw(ticks) / 4, request.id))
    return script


policies = st.sampled_from(["fcfs", "priority"])
sizes = st.sampled_from([16, 20, 24, 64])


def engine_of(policy: Policy, blocks: int) -> Engine:
    return Engine(profile(num_gpu_blocks=blocks), policy)


def blocks_conserved(engine: Engine) -> None:
    kv = engine.kv
    assert kv.available + kv.held == kv.total
    assert kv.available >= 0
    assert kv.held >= 0


def within_limits(engine: Engine) -> None:
    blocks_conserved(engine)
    assert engine.running <= engine.profile.max_num_seqs
    if engine.step:
        prompt_tokens = sum(count for _, count in engine.step.chunks)
        assert prompt_tokens + len(engine.decoding) <= engine.profile.max_num_batched_tokens


def queue_in_order(engine: Engine) -> None:
    queue = engine.queue()
    if engine.policy == "priority":
        order = [(s.request.priority, s.request.arrival, s.serial) for s in queue]
    else:
        order = [s.serial for s in queue]  # type: ignore[misc]
    assert order == sorted(order)


@given(scripts(), policies, sizes)
def test_every_sequence_ends_with_exactly_its_tokens(script, policy, blocks):
    engine = engine_of(policy, blocks)
    story = drive(engine, script, check=within_limits)
    wanted = sum(len(e.request.output_tokens) for e in script if isinstance(e, Arrive))
    assert len(story.sequences) == wanted
    for sequence in story.sequences:
        assert sequence.state in (State.FINISHED, State.ABORTED)
        if sequence.state is State.FINISHED:
            assert sequence.generated == sequence.length
        else:
            assert sequence.generated <= sequence.length
    assert engine.totals.generated == sum(s.generated for s in story.sequences)


@given(scripts(), policies, sizes)
def test_nothing_is_held_once_all_have_ended(script, policy, blocks):
    engine = engine_of(policy, blocks)
    drive(engine, script)
    assert (engine.running, engine.waiting, engine.kv.held) == (0, 0, 0)
    assert engine.kv.available == engine.kv.total
    assert engine.begin(1e6) is None


@given(scripts(), policies, sizes)
def test_blocks_held_are_those_of_the_tokens_in_the_cache(script, policy, blocks):
    """With nothing shared the count can be told from outside, sequence by sequence."""
    alone = [
        Arrive(e.at, Request(e.request.id, e.request.prompt_tokens, e.request.output_tokens, e.at))
        if isinstance(e, Arrive)
        else e
        for e in script
    ]
    ids = [e.request.id for e in alone if isinstance(e, Arrive)]

    def exact(engine: Engine) -> None:
        if engine.step is None:
            live = [s for request_id in ids for s in engine.sequences(request_id) if s.running]
            assert engine.kv.held == sum(-(-s.context // 4) for s in live)

    drive(engine_of(policy, blocks), alone, check=exact)


@given(scripts(), policies, sizes)
def test_the_queue_is_always_in_order(script, policy, blocks):
    drive(engine_of(policy, blocks), script, check=queue_in_order)


@given(scripts(), sizes)
def test_the_victim_of_a_shortage_is_the_last_by_priority_and_arrival(script, blocks):
    story = drive(engine_of("priority", blocks), script)
    for victims, running in story.preempted:
        for victim in victims:
            last = max(running, key=lambda s: (s.request.priority, s.request.arrival, s.serial))
            assert victim is last
            running.remove(victim)


@settings(max_examples=200)
@given(scripts(), policies, sizes)
def test_a_stretch_of_steps_equals_single_steps(script, policy, blocks):
    single, bulk = engine_of(policy, blocks), engine_of(policy, blocks)
    one = drive(single, script)
    many = drive(bulk, script, at_most=UNTIL_CHANGE, check=blocks_conserved)
    assert many.ends() == one.ends()
    assert bulk.totals == single.totals
    assert many.calls <= one.calls


@given(scripts(), policies, sizes)
def test_the_same_script_gives_the_same_story(script, policy, blocks):
    first = drive(engine_of(policy, blocks), script)
    assert drive(engine_of(policy, blocks), script).ends() == first.ends()
