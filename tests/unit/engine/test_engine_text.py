"""Tokens, prefix hashes, generated text, tool arguments, fault scripts."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduling.simulate import text
from scheduling.simulate.server import faults
from scheduling.simulate.server.answers import example

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
        st.sampled_from(["type", "properties", "items", "enum", "anyOf", "$ref", "minimum", "a"]),
        inner, max_size=4),
    max_leaves=12,
)  # fmt: skip


@given(st.text())
def test_encoding_is_as_long_as_counting_says_and_decodes_to_the_same(sample):
    data = sample.encode()
    assert len(text.encode(data)) == text.count(data)
    assert text.decode(text.encode(data)) == data


@given(st.integers(0, 2**64 - 1), st.integers(1, 500))
def test_generated_text_counts_as_many_tokens_as_were_generated(seed, length):
    prose = text.Prose(seed)
    assert text.count(prose.text(length).encode()) == length
    assert all(prose.piece(n).isascii() for n in range(length))


@given(st.binary(max_size=300), st.binary(max_size=300), st.integers(1, 8))
def test_prompts_share_hashes_exactly_as_far_as_their_full_blocks_agree(first, second, size):
    width = size * text.BYTES_PER_TOKEN
    one, two = (text.block_hashes(data, "", size) for data in (first, second))
    alike = 0
    while alike < min(len(one), len(two)) and one[alike] == two[alike]:
        alike += 1
    assert first[: alike * width] == second[: alike * width]
    if alike < min(len(one), len(two)):
        assert first[: (alike + 1) * width] != second[: (alike + 1) * width]
    assert len(one) == len(first) // width


def test_a_salt_changes_every_hash():
    plain, salted = (text.block_hashes(b"x" * 64, salt, 4) for salt in ("", "acme"))
    assert not set(plain) & set(salted)


@given(st.dictionaries(st.text(max_size=5), JSON, max_size=4))
def test_any_schema_gives_some_arguments(schema):
    assert isinstance(example(schema), dict)


def test_a_script_is_read_word_by_word():
    script = faults.parse("in=10, out=20,hold=3s,gap=100ms,cut@5,status=502,retry-after,nousage")
    assert script == faults.Script(
        prompt_tokens=10, output_tokens=20, hold_s=3.0, gap_s=0.1, cut_after=5, status=502,
        retry_after=1, usage=False,
    )  # fmt: skip
    assert faults.parse("") == faults.BEHAVE
    assert faults.parse("hang").hang_after == 0
    assert [faults.parse(words).wait_after for words in ("wait", "wait@4")] == [0, 4]


@given(st.text(max_size=20))
def test_any_text_is_a_script_or_is_refused(words):
    with contextlib.suppress(faults.ScriptError):
        assert isinstance(faults.parse(words), faults.Script)


@pytest.mark.parametrize(
    "words", ["in", "in=", "in=1.5", "out=²", "gap=-1s", "gap=nan", "status=99", "cut", "nope"]
)
def test_a_wrong_word_is_named(words):
    with pytest.raises(faults.ScriptError, match=words.split("=")[0]):
        faults.parse(words)
