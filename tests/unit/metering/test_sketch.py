"""Quantiles within 1%, whatever is merged with what."""

from collections import Counter

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metering.core.sketch import ACCURACY, LEAST_MS, Sketch, bucket, merged

DURATIONS = st.lists(st.floats(0, 3.6e6), min_size=1, max_size=200)


def pack(buckets):
    return Sketch.of(buckets).pack()


def counted(values):
    return Counter(bucket(value) for value in values)


@given(DURATIONS, st.sampled_from([0.0, 0.5, 0.95, 0.99, 1.0]))
def test_a_quantile_is_within_its_accuracy(values, q):
    true = sorted(values)[int(q * (len(values) - 1))]
    assert Sketch.of(counted(values)).quantile(q) == pytest.approx(
        true, rel=ACCURACY * 1.001, abs=LEAST_MS
    )


@given(st.lists(DURATIONS, min_size=1, max_size=5))
def test_merging_packed_parts_is_the_same_as_counting_all_at_once(parts):
    together = merged([pack(counted(part)) for part in parts])
    assert together.buckets == counted([value for part in parts for value in part])


BUCKETS = st.dictionaries(st.integers(0, 1100), st.integers(1, 2**34), max_size=40)


@given(
    st.lists(BUCKETS | st.integers(1, 300).map(lambda n: {7: 255, 7 + n: 1, 8: 255}), max_size=6)
)
def test_counts_of_any_size_survive_packing_and_add_up(parts):
    whole = Counter()
    for part in parts:
        whole.update(part)
        assert merged([pack(part)]).buckets == part
    assert merged(map(pack, parts)).buckets == whole


@pytest.mark.parametrize("count", [255, 65_535, 2**32 - 1])
def test_full_lanes_never_run_into_their_neighbours(count):
    full = dict.fromkeys(range(40, 120), count)
    assert merged([pack(full)] * 700).buckets == dict.fromkeys(range(40, 120), 700 * count)


def test_what_an_earlier_release_stored_is_read_as_before():
    old = [msgspec.msgpack.encode(dict.fromkeys(range(n, 300), n)) for n in (3, 7)]
    both = Counter(dict.fromkeys(range(3, 300), 3)) + Counter(dict.fromkeys(range(7, 300), 7))
    assert merged(old).buckets == both
    assert merged([*old, pack(both)]).buckets == both + both


def test_many_buckets_take_less_room_than_a_map_of_them():
    many = {number: 300 + number for number in range(200, 500)}
    assert len(pack(many)) == 4 + 2 * 300 < len(msgspec.msgpack.encode(many))
    few = {3: 1, 900: 1}
    assert pack(few) == msgspec.msgpack.encode(few)


def test_of_nothing_there_is_no_quantile():
    assert merged([pack({})]).quantile(0.5) is None
