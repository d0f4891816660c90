"""What Celery says while its broker is away: a line, without traceback, and of each kind at most
one in half a minute. Whatever else it reports stays as it is."""

from __future__ import annotations

import logging

from kombu.exceptions import OperationalError
from redis.exceptions import ConnectionError as RedisAway
from redis.exceptions import TimeoutError as RedisSilent

from fairlane.database_faults import Sparing

AWAY = (OperationalError, RedisAway, RedisSilent, OSError)


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
    while fault is not None and not isinstance(fault, AWAY):
        fault = fault.__cause__ or fault.__context__
    return fault is not None
