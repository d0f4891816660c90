from datetime import UTC, datetime
from typing import Any

import pytest

FIRST_DAY = datetime(2026, 11, 26, tzinfo=UTC)  # no test's story of its minutes begins before


@pytest.fixture(autouse=True)
def minutes_are_kept(settings: Any) -> None:
    """Many tests tell of 29 November 2026. Whenever they run, its minutes are not yet forgotten."""
    settings.FAIRLANE_KEEP_MINUTES_DAYS = (datetime.now(UTC) - FIRST_DAY).days
