from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from django.test import Client

from metering import selectors
from tests import builders


@pytest.fixture(autouse=True)
def samples_stay_young(monkeypatch: pytest.MonkeyPatch) -> None:
    """A gateway is heard of for five seconds; a slow machine takes longer than that for a test."""
    young = partial(selectors.latest_samples, max_age_s=600.0)
    monkeypatch.setattr(selectors, "latest_samples", young)


@pytest.fixture
def people(db: None, settings: Any) -> dict[str, Any]:
    settings.PASSWORD_HASHERS = builders.FAST_HASHERS
    builders.apply_policy()
    return builders.cast()


@pytest.fixture
def as_(people: dict[str, Any]) -> Callable[[str], Client]:
    """A browser in which the person of that role is logged in."""

    def logged_in(role: str) -> Client:
        client = Client()
        client.force_login(people[role])
        return client

    return logged_in


@pytest.fixture
def admin(as_: Callable[[str], Client]) -> Client:
    return as_("admin")
