"""Two people's changes of one policy put together: nothing of either is lost unseen."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tenants.core.diff import diff
from tenants.core.document import EMPTY, Document, canonical
from tenants.core.issue import Invalid
from tenants.core.merge import Beside, Merged, Side, merge
from tenants.core.validation import validate
from tests.unit.tenants.policies import POLICY, policies, read

BASE = read(POLICY)


def changed(*pairs: tuple[str, str]) -> Document:
    text = POLICY
    for good, new in pairs:
        assert good in text
        text = text.replace(good, new)
    return read(text)


def merged(theirs: Document, yours: Document, **keep: Side) -> Merged:
    return merge(BASE, theirs, yours, keep)


def told(found: Merged) -> list[tuple[str, str, str, Any, Any, Any]]:
    return [(r.outcome, r.name, r.field, r.base, r.theirs, r.yours) for r in found.beside]


def test_changes_of_different_objects_both_hold_and_nothing_is_to_be_told() -> None:
    theirs = changed(("rank: 2, ceiling: 0.9", "rank: 2, ceiling: 0.8"))
    yours = changed(("weight: 8", "weight: 2"))
    found = merged(theirs, yours)
    both = changed(("rank: 2, ceiling: 0.9", "rank: 2, ceiling: 0.8"), ("weight: 8", "weight: 2"))
    assert diff(validate(found.data), both) == []
    assert found.beside == []


def test_different_fields_of_one_object_both_hold_and_are_told() -> None:
    theirs, yours = (
        changed(("{max_running: 8}", "{max_running: 9}")),
        changed(("weight: 8", "weight: 2")),
    )
    found = merged(theirs, yours)
    assert validate(found.data).tenants[0].weight == 2
    assert validate(found.data).tenants[0].limits.max_running == 9
    assert told(found) == [
        ("yours", "acme", "weight", 8, 8, 2),
        ("theirs", "acme", "limits.max_running", 8, 9, 8),
    ]


def test_the_same_field_stays_as_it_is_in_force_until_the_author_chooses() -> None:
    theirs, yours = changed(("weight: 8", "weight: 5")), changed(("weight: 8", "weight: 2"))
    found = merged(theirs, yours)
    assert validate(found.data).tenants[0].weight == 5
    assert [(row.outcome, row.kept) for row in found.beside] == [("clash", "theirs")]
    chosen = merge(BASE, theirs, yours, {found.beside[0].key: "yours"})
    assert validate(chosen.data).tenants[0].weight == 2
    assert chosen.beside[0].kept == "yours"


def test_the_same_value_by_both_is_no_clash() -> None:
    both = changed(("weight: 8", "weight: 5"))
    assert [row.outcome for row in merged(both, both).beside] == ["same"]


def test_an_application_is_an_object_of_its_own() -> None:
    theirs, yours = changed(("weight: 3", "weight: 4")), changed(("weight: 8", "weight: 2"))
    assert merged(theirs, yours).beside == []
    yours = changed(("weight: 3", "weight: 5"))
    assert told(merged(theirs, yours)) == [("clash", "acme/bot", "weight", 3, 4, 5)]


def test_to_remove_what_the_other_changed_is_a_clash_of_the_whole() -> None:
    theirs = changed(("name: bricks, tier: free", "name: bricks, tier: free, weight: 3"))
    yours = changed(("  - {name: bricks, tier: free}\n", ""))
    found = merged(theirs, yours)
    assert [(r.outcome, r.name, r.field, r.yours) for r in found.beside] == [
        ("clash", "bricks", "", None)
    ]
    assert [tenant.name for tenant in validate(found.data).tenants] == ["acme", "bricks"]
    gone = merge(BASE, theirs, yours, {found.beside[0].key: "yours"})
    assert [tenant.name for tenant in validate(gone.data).tenants] == ["acme"]


def test_budgets_are_matched_by_name() -> None:
    own = "{name: hourly, kind: sustained, cost: 9, period: day}"
    more = own + ", {name: %s, kind: sustained, cost: 1, period: day}"
    found = merged(changed((own, more % "a")), changed((own, more % "b")))
    assert [each.name for each in validate(found.data).tenants[0].budgets] == ["hourly", "a", "b"]


def test_a_list_in_another_order_is_no_change() -> None:
    theirs = changed(("[standard, critical, batch]", "[batch, standard, critical]"))
    yours = changed(("[standard, critical, batch]", "[standard, batch, critical]"))
    assert told(merged(theirs, yours)) == []


def test_undoing_a_revision_keeps_what_came_after_it() -> None:
    first = changed(("weight: 8", "weight: 2"))
    later = changed(("weight: 8", "weight: 2"), ("{max_running: 8}", "{max_running: 9}"))
    undone = validate(merge(first, later, BASE, {}).data)
    assert (undone.tenants[0].weight, undone.tenants[0].limits.max_running) == (8, 9)


def test_undoing_what_was_changed_again_is_a_clash() -> None:
    first, later = changed(("weight: 8", "weight: 2")), changed(("weight: 8", "weight: 3"))
    assert told(merge(first, later, BASE, {})) == [("clash", "acme", "weight", 2, 3, 8)]


def same(one: Document, other: Document) -> bool:
    return diff(one, other) == []


@given(policies(), policies())
@settings(max_examples=40)
def test_where_only_one_side_changed_that_side_holds(one: Any, other: Any) -> None:
    a, b = validate(one), validate(other)
    assert same(validate(merge(a, a, b, {}).data), b)
    assert same(validate(merge(a, b, a, {}).data), b)
    assert same(validate(merge(a, b, b, {}).data), b)


@given(policies(), policies(), policies(), st.data())
@settings(max_examples=40)
def test_a_field_holds_one_of_the_two_and_unseen_it_is_theirs(
    base: Any, theirs: Any, yours: Any, data: Any
) -> None:
    documents = [validate(each) for each in (base, theirs, yours)]
    for row in merge(*documents, {}).beside:
        assert row.outcome in ("theirs", "yours", "same", "clash")
        assert row.kept == ("yours" if row.outcome == "yours" else "theirs")
    try:
        found = validate(merge(*documents, {}).data)
    except Invalid:
        return  # each sound alone, and not together: the author is told which
    assert canonical(found)["version"] == 1


def test_from_nothing_to_something_and_back() -> None:
    assert same(validate(merge(EMPTY, EMPTY, BASE, {}).data), BASE)
    assert same(validate(merge(BASE, BASE, EMPTY, {}).data), EMPTY)
    assert (
        Beside("tenant", "acme", "weight", 1, 2, 3, "clash", "theirs").key == "tenant acme weight"
    )
