"""While the broker is away, Celery tells it in lines, not in pages."""

from __future__ import annotations

import logging
import sys

import pytest
from celery.beat import SchedulingError
from kombu.exceptions import OperationalError

from fairlane.broker_faults import OneLine

REFUSED = "Error 111 connecting to 127.0.0.1:1. Connection refused."


def record(
    message: str, *args: object, error: Exception | None = None, line: int = 1
) -> logging.LogRecord:
    told = None
    if error is not None:
        try:
            raise error
        except Exception:
            told = sys.exc_info()
    return logging.LogRecord("celery.beat", logging.ERROR, "beat.py", line, message, args, told)


def hindered(cause: Exception) -> SchedulingError:
    error = SchedulingError(f"Couldn't apply scheduled task send alerts: {cause}")
    error.__context__ = cause
    return error


@pytest.mark.parametrize("cause", [OperationalError(REFUSED), ConnectionRefusedError(REFUSED)])
def test_what_could_not_be_sent_is_a_line(cause: Exception) -> None:
    told = record("Message Error: %s\n%s", "…", ["a stack"], error=hindered(cause))
    assert OneLine().filter(told)
    assert told.getMessage() == f"Couldn't apply scheduled task send alerts: {REFUSED}"
    assert told.exc_info is None


def test_lines_are_joined_and_not_told_again_at_once() -> None:
    sparing = OneLine()
    told = record("consumer: Cannot connect: %s.\n%s\n", REFUSED, "Trying again in 2.00 seconds")
    assert sparing.filter(told)
    assert told.getMessage() == f"consumer: Cannot connect: {REFUSED}. Trying again in 2.00 seconds"
    assert not sparing.filter(record("consumer: Cannot connect: %s.\n%s\n", REFUSED, "Trying"))
    assert sparing.filter(record("something else", line=2))


def test_a_fault_of_a_task_keeps_its_traceback() -> None:
    told = record("Message Error: %s\n%s", "…", ["a stack"], error=hindered(ValueError("wrong")))
    assert OneLine().filter(told)
    assert told.exc_info is not None
    assert "a stack" in told.getMessage()
