"""Each trial, short: `python -m tests.trials.<name>` runs it in full (docs/benchmarks.md), on
PostgreSQL with `FAIRLANE_TEST_STORE=postgres`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.trials import drain, kills, mixed, overshoot


@pytest.mark.store
def test_whatever_ends_a_request_nothing_is_left_over_and_every_counter_is_the_ledgers(
    tmp_path: Path,
) -> None:
    assert mixed.trial(tmp_path, requests=600, parallel=64, seed=2).violated == []


@pytest.mark.store
def test_killed_at_any_moment_nothing_finished_is_lost_and_nothing_counted_twice(
    tmp_path: Path,
) -> None:
    assert kills.trial(tmp_path, kills=1, parallel=16, seed=2).violated == []


def test_of_two_hundred_at_once_no_more_than_a_budget_has_room_for_are_let_in(
    tmp_path: Path,
) -> None:
    assert overshoot.trial(tmp_path, requests=200, room=20).violated == []


def test_a_stop_under_load_fails_no_request(tmp_path: Path) -> None:
    assert drain.trial(tmp_path, stops=1, parallel=32, seed=2).violated == []
