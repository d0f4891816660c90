from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from django.test import Client

from tests import builders

FIRST_DAY = datetime(2026, 11, 26, tzinfo=UTC)  # no test's story of its minutes begins before


@pytest.fixture(autouse=True)
def minutes_are_kept(settings: Any) -> None:
    """Many tests tell of 29 November 2026. Whenever they run, its minutes are not yet forgotten."""
    settings.FAIRLANE_KEEP_MINUTES_DAYS = (datetime.now(UTC) - FIRST_DAY).days


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
