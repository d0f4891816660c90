"""Background work while the database cannot be used comes again, and logs one line."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from django.db import OperationalError
from psycopg.errors import lookup

from fairlane import database_faults
from fairlane.celery import app


@pytest.fixture
def task() -> Any:
    def work(error: Exception | None) -> int:
        if error is not None:
            raise error
        return 7

    name = "tests.work"
    yield app.task(name=name)(work)
    app.tasks.pop(name)


def full() -> Exception:
    error = OperationalError("no space left")
    error.__cause__ = lookup("53100")("no space left")
    return error


def test_it_waits_without_a_traceback(task: Any, caplog: pytest.LogCaptureFixture) -> None:
    assert task(full()) is None
    (line,) = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert line.exc_info is None
    assert database_faults.FULL in line.getMessage()
    assert "tests.work" in line.getMessage()


def test_all_else_is_as_ever(task: Any) -> None:
    assert task(None) == 7
    with pytest.raises(KeyError):
        task(KeyError("a fault of ours"))
