"""The class of every task."""

from __future__ import annotations

from typing import Any

import structlog
from celery import Task

from fairlane import database_faults

log = structlog.get_logger("fairlane.worker")


class Regular(Task):  # type: ignore[type-arg]  # a plain class when it runs
    """Background work that comes again at its time: while the database is away, a line of each."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return super().__call__(*args, **kwargs)
        except Exception as error:
            reason = database_faults.why(error)
            if reason is None:
                raise
            log.error("background work waits", task=self.name, reason=reason, error=str(error))
            return None
