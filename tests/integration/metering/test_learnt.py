"""What the gateway learnt of prompts and outputs survives it, bounded, and is shown by model."""

from __future__ import annotations

import pytest

from gateway.estimates import Estimates
from metering import learnt, selectors
from metering.models import Learnt
from tests.integration.metering.records import NOON

pytestmark = [pytest.mark.django_db, pytest.mark.store]


def taught():
    estimates = Estimates()
    for _ in range(60):
        estimates.output.observe("acme/bot", "chat", 100)
        estimates.prompt.observe("chat", 3_000, 1_000)
        estimates.output_errors.add("chat", 100, 80)
        estimates.prompt_errors.add("chat", 1_000, 1_100)
    estimates.output.observe("acme/bot", "new", 7)
    return estimates


def test_a_restart_does_not_begin_anew():
    before = taught()
    learnt.save(before.learnt(), NOON)
    after = Estimates(learnt.load())
    assert after.output.expect("acme/bot", "chat", None) == before.output.expect(
        "acme/bot", "chat", None
    )
    assert after.prompt.estimate("chat", 30_000) == before.prompt.estimate("chat", 30_000)
    assert after.learnt() == before.learnt()


def test_the_first_start_and_a_foreign_shape_begin_with_nothing():
    assert learnt.load() == learnt.Dumps()
    Learnt.objects.create(name="estimates", at=NOON, value={"output": "of another version"})
    assert learnt.load() == learnt.Dumps()


def test_saving_again_replaces_and_stays_small():
    estimates = taught()
    for number in range(5_000):
        estimates.output.observe(f"acme/{number}", "chat", 5)
    learnt.save(estimates.learnt(), NOON)
    learnt.save(estimates.learnt(), NOON)
    assert len(Learnt.objects.get().value["output"]) == 2_000 + 2  # and both models' own
    kept = {row[0] for row in Learnt.objects.get().value["output"]}
    assert "acme/4999" in kept
    assert "acme/0" not in kept


def test_errors_are_told_by_model():
    learnt.save(taught().learnt(), NOON)
    chat, new = selectors.estimate_errors().values()
    assert (chat.model, new.model) == ("chat", "new")
    assert chat.bytes_per_token == pytest.approx(3.0, rel=0.1)
    assert chat.output_tokens == pytest.approx(100, rel=0.05)
    assert new.bytes_per_token is None
    assert new.output_tokens == 7


def test_the_distribution_of_errors_survives_a_restart_and_is_told_by_model():
    learnt.save(taught().learnt(), NOON)
    after = Estimates(learnt.load())
    assert after.output_errors.dump() == taught().output_errors.dump()
    chat, new = selectors.estimate_errors().values()
    assert chat.output.quantile(0.99) == pytest.approx(0.2, rel=0.03)
    assert chat.prompt.median() == pytest.approx(-0.1, rel=0.03)
    assert (chat.prompt.total, new.prompt.total) == (60, 0)


def test_what_an_earlier_version_saved_is_still_taken_up():
    old = taught().learnt()
    value = {"output": old.output, "prompt": old.prompt}
    Learnt.objects.create(name="estimates", at=NOON, value=value)
    assert learnt.load().output == [list(row) for row in old.output]
    assert learnt.load().prompt_errors == {}
