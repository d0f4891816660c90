from __future__ import annotations

from functools import partial

import pytest

from metering import selectors


@pytest.fixture(autouse=True)
def samples_stay_young(monkeypatch: pytest.MonkeyPatch) -> None:
    """A gateway is heard of for five seconds; a slow machine takes longer than that for a test."""
    young = partial(selectors.latest_samples, max_age_s=600.0)
    monkeypatch.setattr(selectors, "latest_samples", young)
