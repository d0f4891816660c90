"""Policy text is read as it stands, or refused with the line: nothing is silently resolved."""

import pytest

from tenants.core import yaml_text
from tenants.core.issue import Invalid
from tenants.core.validation import validate
from tenants.core.yaml_text import LARGEST, dump, parse

REFUSED = [
    ("a: 1\nb: 2\na: 3", "line 3: key 'a' is given twice, first on line 1"),
    ("a:\n  - {x: 1, x: 2}", "line 2: a[0]: key 'x' is given twice"),
    ("a: &one 1\nb: *one", "line 2: b: anchors and aliases are refused"),
    ("a: &a [*a]", "anchors and aliases are refused"),
    ("a: {<<: {b: 1}}", "line 1: a: merge keys (<<) are refused"),
    ("--- {}\n--- {}", "line 2: a policy is one document"),
    ("a: !!python/object:os.system 1", "line 1: a: tags are refused"),
    ("a: !!str 1", "tags are refused"),
    ("1: 2", "a key must be plain text, not 1"),
    ("? [a]\n: 1", "a key must be plain text"),
    ("a: [1", "not YAML"),
    ("a:\n\t- b", "line 2: not YAML"),
    ("a: b: c", "line 1: not YAML"),
    ("\x00", "not YAML"),
    ("a: 2020-13-45", "line 1: a: '2020-13-45' cannot be read"),
    ("a: " + "9" * 5000, "cannot be read: too large a number"),
    ("a: 017", "line 1: a: '017' is no plain number; write it in decimal, or in quotes"),
    ("a: -0_1", "is no plain number"),
    ("a: [1:30]", "line 1: a[0]: '1:30' is no plain number"),
    ("a: 1:30.5", "is no plain number"),
    ("a: 1 # \ud800", "not text: '\\ud800' is half of a character"),
    ("a: 0x" + "f" * 20_000, "cannot be read: too large a number"),
    ("[" * 25 + "]" * 25, "line 1: not YAML: nested deeper than 20"),
    ("[" * 200_000, "not YAML"),
    ("a: *nothing", "anchors and aliases are refused"),
]


@pytest.mark.parametrize(("text", "said"), REFUSED)
def test_text_that_could_mean_something_else_is_refused(text: str, said: str) -> None:
    with pytest.raises(Invalid) as refused:
        parse(text)
    assert said in str(refused.value)


def test_numbers_that_everybody_reads_alike_are_taken() -> None:
    text = "[0, -0, 1_000, 0.5, 1.5e3, 1e+3, 0x1F, '017', '1:30', 10:30 h, 2020-01-01T10:30:00Z]"
    assert parse(text).data[:9] == [0, 0, 1000, 0.5, "1.5e3", "1e+3", 31, "017", "1:30"]


def test_a_text_past_all_measure_is_not_even_read() -> None:
    with pytest.raises(Invalid, match="larger than"):
        parse(" " * (LARGEST + 1))


def test_every_place_has_a_line() -> None:
    text = parse("a: 1\nb:\n  - x: 2\n    y: {z: 3}\n  - 5\n")
    assert text.data == {"a": 1, "b": [{"x": 2, "y": {"z": 3}}, 5]}
    assert [text.line(loc) for loc in [("a",), ("b",), ("b", 0), ("b", 0, "y", "z"), ("b", 1)]] == [
        1, 2, 3, 4, 5
    ]  # fmt: skip


def test_a_place_that_is_missing_has_the_line_of_what_is_around_it() -> None:
    assert parse("a:\n  - x: 2\n").line(("a", 0, "nothing", 3)) == 2


def test_two_slips_in_one_text_are_both_told() -> None:
    with pytest.raises(Invalid) as refused:
        parse("a: 1\na: 2\nb: &x 1\n")
    assert [issue.line for issue in refused.value.issues] == [2, 3]


@pytest.mark.parametrize("text", ["on", "null", "1e3", "0x1f", "12:30", "~", "", " x", "é", "a: b"])
def test_text_that_looks_like_something_else_stays_text(text: str) -> None:
    assert parse(dump({"a": text})).data == {"a": text}


def test_an_empty_text_says_nothing() -> None:
    assert parse("").data is None
    assert parse("# only a comment\n").data is None


def test_a_text_of_more_values_than_a_policy_has_is_refused_before_it_is_read_through(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(yaml_text, "MOST_VALUES", 100)
    with pytest.raises(Invalid, match="at most"):
        yaml_text.parse(f"lanes: [{'1,' * 100}1]")
    with pytest.raises(Invalid, match="at most"):
        yaml_text.check_size({"lanes": [{"name": [1]}] * 50})
    yaml_text.check_size({"lanes": [1] * 90})


def test_of_many_faults_some_are_told_and_the_rest_counted() -> None:
    with pytest.raises(Invalid) as refused:
        validate({"version": 1, "lanes": [1] * 600})
    assert len(refused.value.issues) == 501
    assert any("100 more faults" in issue.message for issue in refused.value.issues)
