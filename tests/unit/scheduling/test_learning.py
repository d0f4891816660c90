"""`capacity: auto`: the queue stands in the gateway, and the engine's batch is full."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from scheduling.core.learning import LEAST, MOST, READINGS, STANDING, Held, Learner, Reading

START = (16, 60_000.0)
BUSY = Reading(running=16, waiting=0, memory=0.3)


def observe(learner: Learner, reading: Reading, wanted: bool = True, load: float = 100) -> bool:
    """One window of readings while the endpoint is filled to its limits."""
    held = Held(learner.max_running, load, wanted)
    return [learner.observe(reading, held) for _ in range(READINGS)][-1]


class Batch:
    """An engine that runs `seqs` requests of `tokens` in `memory` tokens, filled by a gateway in
    which many wait, and by `others` from elsewhere."""

    def __init__(self, seqs: int, tokens: int, memory: int, others: int = 0) -> None:
        self.seqs, self.tokens, self.memory, self.others = seqs, tokens, memory, others
        self.learner = Learner(*START)

    @property
    def room(self) -> int:
        return max(1, min(self.seqs, self.memory // self.tokens))

    def turn(self) -> Reading:
        learner = self.learner
        held = max(1, min(learner.max_running, int(learner.max_load // self.tokens)))
        there = held + self.others
        running = min(there, self.room)
        reading = Reading(running, there - running, running * self.tokens / self.memory)
        learner.observe(reading, Held(held, float(held * self.tokens), True))
        return reading


@given(st.integers(1, 1024), st.integers(1, 20_000), st.integers(20_000, 2_000_000))
def test_it_settles_where_the_batch_is_full_and_hardly_anything_waits(
    seqs: int, tokens: int, memory: int
) -> None:
    engine = Batch(seqs, tokens, memory)
    for _ in range(400):
        engine.turn()
    for _ in range(30):
        reading = engine.turn()
        assert reading.waiting <= STANDING + engine.room / 12, "a step of a sixteenth at most"
        full = reading.running >= 0.85 * engine.room - 1
        assert full, "but where the memory is nearly full before the last request fits"


@given(st.lists(st.tuples(st.floats(0, 1e6), st.floats(0, 1e6), st.floats(0, 1)), max_size=60))
def test_limits_stay_within_their_bounds_whatever_the_engine_tells(
    told: list[tuple[float, float, float]],
) -> None:
    learner = Learner(*START)
    for running, waiting, memory in told:
        before = learner.max_running
        held = Held(learner.max_running, 1e4, True)
        learner.observe(Reading(running, waiting, memory), held)
        assert LEAST <= learner.max_running <= MOST
        assert learner.max_load >= 1
        assert learner.max_running >= before // 2


def test_it_grows_while_requests_wait_here_and_none_in_the_engine() -> None:
    learner = Learner(*START)
    assert observe(learner, BUSY)
    assert (learner.max_running, learner.max_load) == (20, 60_000.0)


def test_it_does_not_grow_where_nobody_waits_here() -> None:
    learner = Learner(*START)
    assert not observe(learner, BUSY, wanted=False)
    assert learner.max_running == 16


def test_it_does_not_grow_while_a_lanes_ceiling_and_not_the_endpoint_holds_requests_back() -> None:
    learner = Learner(*START)
    for _ in range(20):
        learner.observe(BUSY, Held(11, 100, wanted=True))
    assert learner.max_running == 16


def test_it_does_not_grow_into_a_memory_that_is_nearly_full() -> None:
    learner = Learner(*START)
    observe(learner, Reading(16, 0, memory=0.95))
    assert learner.max_running == 16


def test_where_the_load_holds_requests_back_the_load_grows() -> None:
    learner = Learner(*START)
    for _ in range(READINGS):
        learner.observe(Reading(4, 0, 0.2), Held(4, 50_000, wanted=True))
    assert (learner.max_running, learner.max_load) == (16, 75_000.0)


def test_it_shrinks_by_what_is_too_many() -> None:
    learner = Learner(40, 60_000.0)
    observe(learner, Reading(running=32, waiting=8))
    assert learner.max_running == 33, "one may wait, to be there when a place becomes free"


def test_it_shrinks_by_half_at_most() -> None:
    learner = Learner(1000, 60_000.0)
    observe(learner, Reading(running=8, waiting=992))
    assert learner.max_running == 500


def test_where_memory_is_full_the_load_shrinks() -> None:
    learner = Learner(16, 60_000.0)
    observe(learner, Reading(running=8, waiting=8, memory=0.99), load=60_000.0)
    assert learner.max_running == 16
    assert learner.max_load < 40_000


def test_a_burst_that_waits_for_a_moment_changes_nothing() -> None:
    learner = Learner(*START)
    for waiting in (0, 12, 0, 0, 9, 0):
        learner.observe(Reading(16, waiting), Held(16, 100, wanted=False))
    assert learner.max_running == 16


def test_of_several_gateways_each_leaves_its_part() -> None:
    """This one holds a quarter of what is there; ten too many wait."""
    learner = Learner(20, 60_000.0)
    observe(learner, Reading(running=69, waiting=11))
    assert learner.max_running == 18  # 20 - 10 / 4, rounded


def test_others_at_the_engine_take_nothing_from_who_holds_nothing() -> None:
    learner = Learner(*START)
    for _ in range(9):
        learner.observe(Reading(32, 50), Held(0, 0, wanted=False))
    assert learner.max_running == 16


def test_without_readings_the_last_limits_stay_and_old_readings_do_not_count() -> None:
    learner = Learner(*START)
    observe(learner, BUSY)
    learner.observe(BUSY, Held(20, 100, True))
    learner.forget()
    for _ in range(READINGS - 1):
        assert not learner.observe(BUSY, Held(20, 100, True))
    assert learner.max_running == 20


def test_an_engine_that_says_it_is_full_is_believed() -> None:
    learner = Learner(*START)
    assert learner.refused(Held(9, 100, True))
    assert learner.max_running == 8
    assert not learner.refused(Held(8, 100, True)), "of those that it refuses at once, one counts"
    learner.observe(BUSY, Held(8, 100, True))
    assert learner.refused(Held(8, 100, True))
    assert learner.max_running == 7
