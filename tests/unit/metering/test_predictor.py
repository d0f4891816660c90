"""Expected output length: learnt per application and model, doubted where it is noisy."""

import random

from metering.core.predictor import PRIOR_TOKENS, OutputPredictor


def taught(lengths, application="alice/bot", model="chat"):
    predictor = OutputPredictor()
    for length in lengths:
        predictor.observe(application, model, length)
    return predictor


def test_the_unknown_is_expected_to_be_as_long_as_the_prior_but_never_past_max_tokens():
    predictor = OutputPredictor()
    assert predictor.expect("alice/bot", "chat", None) == PRIOR_TOKENS
    assert predictor.expect("alice/bot", "chat", 60) == 60


def test_a_steady_application_is_predicted_closely():
    assert 98 <= taught([100] * 60).expect("alice/bot", "chat", None) <= 106


def test_max_tokens_is_a_ceiling_and_no_prediction():
    assert taught([100] * 60).expect("alice/bot", "chat", 4096) < 110


def test_a_new_application_begins_where_its_model_is():
    predictor = taught([20] * 60)
    assert predictor.expect("bob/other", "chat", None) < 60
    assert predictor.expect("bob/other", "another model", None) == PRIOR_TOKENS


def test_applications_are_told_apart():
    predictor = taught([20] * 60)
    for _ in range(60):
        predictor.observe("alice/report", "chat", 900)
    assert predictor.expect("alice/bot", "chat", None) < 60
    assert predictor.expect("alice/report", "chat", None) > 700


def test_it_follows_a_change():
    predictor = taught([50] * 300 + [800] * 150)
    assert predictor.expect("alice/bot", "chat", None) > 650


def test_the_noisy_are_trusted_less():
    rng = random.Random(7)
    noisy = taught([rng.choice([1, 1, 1, 1, 1, 1, 1, 1, 1, 2000]) for _ in range(400)])
    mean = noisy.errors()["chat"][0]
    assert noisy.error_tokens("alice/bot", "chat") > mean * 0.8
    assert noisy.expect("alice/bot", "chat", None) < mean * 0.9


def test_its_error_is_shown_per_model():
    mean, error = taught([100] * 200).errors()["chat"]
    assert (round(mean), error < 3) == (100, True)


def test_no_more_pairs_are_remembered_than_allowed_and_the_used_ones_stay():
    predictor = OutputPredictor(most_pairs=10)
    for number in range(100):
        predictor.observe("alice/bot", "chat", 5)
        predictor.observe(f"app {number}", "chat", 5)
    assert len(predictor.dump()) == 11  # and the model's own
    assert "alice/bot" in {row[0] for row in predictor.dump()}


def test_what_it_learnt_survives_a_restart():
    predictor = taught([30, 40, 50] * 20)
    again = OutputPredictor()
    again.load(predictor.dump())
    assert again.expect("alice/bot", "chat", None) == predictor.expect("alice/bot", "chat", None)
    assert again.errors() == predictor.errors()
