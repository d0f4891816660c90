"""Figures as the console's pages write them."""

from __future__ import annotations

import pytest

from tenants.templatetags.console import percent


@pytest.mark.parametrize(
    ("value", "digits", "text"),
    [
        (0.1234, 1, "12.3%"),
        (0.9958, 0, "99%"),
        (0.9999, 1, "99.9%"),
        (1.0, 0, "100%"),
        (sum([0.1] * 10), 1, "100.0%"),  # short of 1 by rounding alone
        (1.04, 0, "104%"),
        (-0.38, 1, "-38.0%"),
        (None, 1, "–"),
    ],
)
def test_100_percent_is_all_of_it(value: float | None, digits: int, text: str) -> None:
    assert percent(value, digits) == text
