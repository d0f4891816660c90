"""What DATABASE_URL comes to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured

from fairlane.environment import database


@pytest.fixture
def config(monkeypatch: pytest.MonkeyPatch) -> Any:
    def read(url: str) -> dict[str, Any]:
        monkeypatch.setenv("DATABASE_URL", url)
        return database("DATABASE_URL", Path("/data/fairlane.sqlite3"), 12)

    return read


def test_postgresql_has_a_pool_that_looks_at_a_connection_before_it_gives_it(config: Any) -> None:
    found = config("postgres://fairlane:secret@db:5432/fairlane")
    assert found["OPTIONS"]["pool"]["max_size"] == 12
    assert found["OPTIONS"]["pool"]["min_size"] == 0
    assert found["CONN_HEALTH_CHECKS"] is True
    assert found["CONN_MAX_AGE"] == 0
    assert found["OPTIONS"]["options"] == "-c lock_timeout=10s"


def test_the_url_may_say_otherwise_of_the_connection_and_nothing_of_the_pool(config: Any) -> None:
    found = config(
        "postgres://db/fairlane?sslmode=require&connect_timeout=2&pool=no&conn_max_age=9"
    )
    assert found["OPTIONS"]["sslmode"] == "require"
    assert int(found["OPTIONS"]["connect_timeout"]) == 2
    assert found["OPTIONS"]["keepalives_idle"] > 0
    assert found["OPTIONS"]["pool"]["max_size"] == 12
    assert found["CONN_MAX_AGE"] == 0


def test_sqlite_has_none(config: Any) -> None:
    found = config("")
    assert found["NAME"] == "/data/fairlane.sqlite3"
    assert "pool" not in found["OPTIONS"]


@pytest.mark.parametrize("given", ["u:s3cret@h:abc/x", "u:s3cret/of@h/x", "u:s3cret#of@h/x"])
def test_a_password_that_is_not_written_as_a_url_takes_it_is_not_told(
    config: Any, given: str
) -> None:
    with pytest.raises(
        ImproperlyConfigured, match=r"DATABASE_URL has .* it takes postgres://"
    ) as bad:
        config(f"postgres://{given}")
    assert "s3cret" not in str(bad.value)
