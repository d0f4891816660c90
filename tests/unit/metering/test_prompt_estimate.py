"""Prompt tokens by the byte: a ratio that each engine usage corrects."""

from hypothesis import given
from hypothesis import strategies as st

from metering.core.prompt_estimate import LEAST_RATIO, MOST_RATIO, PromptEstimator


def taught(ratio, times=200, model="chat"):
    estimator = PromptEstimator()
    for number in range(times):
        tokens = 50 + number % 100
        estimator.observe(model, round(tokens * ratio), tokens)
    return estimator


def test_a_new_model_begins_at_four_bytes_a_token():
    assert PromptEstimator().estimate("chat", 4_000) == 1_000
    assert PromptEstimator().estimate("chat", 0) == 1


def test_it_converges_on_what_the_engine_counts():
    for ratio in (1.5, 3.2, 6.0):
        estimate = taught(ratio).estimate("chat", round(1_000 * ratio))
        assert 970 <= estimate <= 1_030


def test_models_are_told_apart():
    assert taught(2.0, model="other").estimate("chat", 4_000) == 1_000


def test_it_shows_its_error_and_the_error_shrinks():
    early, late = taught(2.0, times=5), taught(2.0, times=300)
    assert late.errors()["chat"][1] < 0.02 < early.errors()["chat"][1]


def test_one_odd_body_moves_little():
    estimator = taught(4.0)
    before = estimator.estimate("chat", 40_000)
    estimator.observe("chat", 10**9, 10)
    estimator.observe("chat", 10, 10**9)
    assert before / 4 <= estimator.estimate("chat", 40_000) <= before * 4


@given(st.lists(st.tuples(st.integers(-5, 10**12), st.integers(-5, 10**12))))
def test_whatever_it_is_told_the_ratio_stays_in_its_bounds(observations):
    estimator = PromptEstimator()
    for body_bytes, tokens in observations:
        estimator.observe("chat", body_bytes, tokens)
    assert 1e6 / MOST_RATIO <= estimator.estimate("chat", 10**6) <= 1e6 / LEAST_RATIO


def test_models_are_bounded_and_survive_a_restart():
    estimator = PromptEstimator(most_models=5)
    for number in range(50):
        estimator.observe(f"m{number}", 100, 50)
    again = PromptEstimator()
    again.load(estimator.dump())
    assert list(again.errors()) == [f"m{n}" for n in range(45, 50)]
    assert again.errors() == estimator.errors()
