"""What Celery says while its broker is away: a line, without traceback, and of each kind at most
one in half a minute. Whatever else it reports stays as it is."""

from __future__ import annotations

import logging
import sys

from fairlane.database_faults import Sparing

# By name: every process sets up logging, and redis alone takes 8 MiB. What is not loaded has raised
# nothing.
AWAY = (
    ("kombu.exceptions", "OperationalError"),
    ("redis.exceptions", "ConnectionError"),
    ("redis.exceptions", "TimeoutError"),
    ("builtins", "OSError"),
)


class OneLine(Sparing):
    """For loggers of Celery whose warnings are about the broker."""

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno < logging.WARNING:
            return True
        fault = record.exc_info[1] if record.exc_info else None
        if fault is not None and not is_away(fault):
            return True
        said = record.getMessage() if fault is None else str(fault)
        record.msg, record.args, record.exc_info = " ".join(said.split()), (), None
        return super().filter(record)


def is_away(fault: BaseException | None) -> bool:
    """Beat wraps what hindered it."""
    loaded = tuple(getattr(sys.modules[m], name) for m, name in AWAY if m in sys.modules)
    while fault is not None and not isinstance(fault, loaded):
        fault = fault.__cause__ or fault.__context__
    return fault is not None
