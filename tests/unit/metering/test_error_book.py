"""How far estimates were off: signed, relative to what came, mergeable, fading, bounded."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metering.core.error_book import ACCURACY, MOST_WEIGHT, ErrorBook, Errors

NEAR = ACCURACY * 1.001
tokens = st.integers(1, 10**6)
pairs = st.lists(st.tuples(tokens, tokens), min_size=1, max_size=200)


def seen(*pairs):
    errors = Errors()
    for actual, estimate in pairs:
        errors.add(actual, estimate)
    return errors


def test_it_says_how_far_and_to_which_side_estimates_were_off():
    assert seen((100, 75)).median() == pytest.approx(0.25, rel=NEAR)  # too low
    assert seen((100, 200)).median() == pytest.approx(-1.0, rel=NEAR)  # too high
    assert seen((100, 100)).median() == 0.0
    assert seen().median() is None
    assert seen().quantile(0.9) is None


@given(pairs)
def test_quantiles_of_the_size_are_those_of_the_exact_errors(pairs):
    sizes = sorted(abs(actual - estimate) / actual for actual, estimate in pairs)
    for q in (0.5, 0.9, 0.99):
        exact = sizes[min(len(sizes) - 1, max(0, -int(-q * len(sizes) // 1) - 1))]
        near = pytest.approx(min(exact, 1000.0), rel=NEAR, abs=0.001)
        assert seen(*pairs).quantile(q) == near


@given(pairs, pairs)
def test_merging_two_is_as_if_one_had_seen_all(some, others):
    merged = seen(*some)
    merged.merge(seen(*others))
    assert merged.buckets == seen(*some, *others).buckets
    assert merged.total == len(some) + len(others)


def test_the_parts_between_edges_add_up():
    errors = seen((100, 300), (100, 100), (100, 101), (100, 40))
    assert errors.parts((-1.0, -0.02, 0.02, 0.5)) == [0.25, 0.0, 0.5, 0.0, 0.25]
    assert Errors().parts((0.0,)) == [0.0, 0.0]


def test_old_errors_fade_and_the_size_stays_bounded():
    errors = Errors()
    for number in range(10_000):
        errors.add(1_000, number)
    assert errors.total <= MOST_WEIGHT
    assert len(errors.buckets) < 700
    for _ in range(20_000):
        errors.add(100, 100)
    assert errors.quantile(0.99) == 0.0
    errors.merge(errors)
    assert errors.total <= MOST_WEIGHT


def test_nothing_came_is_no_error_and_extremes_are_kept_in_bounds():
    book = ErrorBook()
    book.add("chat", 0, 100)
    assert book.models() == {}
    book.add("chat", 1, 10**12)
    book.add("chat", 10**12, 0)
    assert book.models()["chat"].quantile(1.0) == pytest.approx(1000, rel=NEAR)


def test_models_are_bounded_and_survive_a_restart_as_json():
    book = ErrorBook(most_models=5)
    for number in range(50):
        book.add(f"m{number}", 100, number)
    again = ErrorBook()
    again.load(
        {
            m: {int(n): w for n, w in b.items()}
            for m, b in json.loads(json.dumps(book.dump())).items()
        }
    )
    assert list(again.models()) == [f"m{n}" for n in range(45, 50)]
    assert again.dump() == book.dump()
