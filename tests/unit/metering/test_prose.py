"""Accounts and moments in an alert's message become words; all else stays as it was."""

from __future__ import annotations

import pytest

from metering.core.prose import in_words, the_budget

SAID = [
    ("tenant:acme/hourly has used 85% of it", "Budget hourly of acme has used 85% of it"),
    (
        "see application:acme/night.ly/per-day.",
        "see budget per-day of application night.ly of acme.",
    ),
    ("key:fufywk8hsjjv/cap", "Budget cap of key fl_fufywk8hsjjv"),
    ("The budget tenant:acme/hourly allows 5", "The budget hourly of acme allows 5"),
    ("it ends at 2026-11-30T18:05Z; then", "it ends at 30 Nov 18:05 UTC; then"),
    ("at 2026-11-30T18:05:09Z", "at 30 Nov 18:05 UTC"),
    ("acme in lane-1 of org/model", "acme in lane-1 of org/model"),
    ("http://10.0.0.1:8000/v1 does not answer", "http://10.0.0.1:8000/v1 does not answer"),
    ("http://tenant:8000/v1 does not answer", "http://tenant:8000/v1 does not answer"),
    ("tenant:acme", "tenant:acme"),
    ("", ""),
]


@pytest.mark.parametrize(("text", "words"), SAID)
def test_a_message_in_words(text: str, words: str) -> None:
    assert in_words(text) == words


@pytest.mark.parametrize(
    ("account", "words"),
    [
        ("tenant:acme/hourly", "The budget hourly of acme"),
        ("application:acme/nightly/hourly", "The budget hourly of application nightly of acme"),
        ("key:fufywk8hsjjv/cap", "The budget cap of key fl_fufywk8hsjjv"),
        ("odd", "The budget odd"),
    ],
)
def test_a_refusal_begins_with_its_budget_as_the_pages_call_it(account: str, words: str) -> None:
    assert the_budget(account) == words
