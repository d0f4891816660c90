"""Quantiles within 1%, whatever is merged with what."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metering.core.sketch import ACCURACY, LEAST_MS, bucket, merged, pack, quantile

DURATIONS = st.lists(st.floats(0, 3.6e6), min_size=1, max_size=200)


def counted(values):
    return Counter(bucket(value) for value in values)


@given(DURATIONS, st.sampled_from([0.0, 0.5, 0.95, 0.99, 1.0]))
def test_a_quantile_is_within_its_accuracy(values, q):
    true = sorted(values)[int(q * (len(values) - 1))]
    assert quantile(counted(values), q) == pytest.approx(true, rel=ACCURACY * 1.001, abs=LEAST_MS)


@given(st.lists(DURATIONS, min_size=1, max_size=5))
def test_merging_packed_parts_is_the_same_as_counting_all_at_once(parts):
    together = merged([pack(counted(part)) for part in parts])
    assert together == counted([value for part in parts for value in part])


def test_of_nothing_there_is_no_quantile():
    assert quantile(merged([pack({})]), 0.5) is None
