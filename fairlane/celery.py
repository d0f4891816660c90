"""Celery for roll-ups, retention and checks; never on the request path."""

import os
import warnings
from typing import Any

import structlog
from celery import Celery, Task, signals
from celery.exceptions import CPendingDeprecationWarning
from celery.platforms import SecurityWarning  # type: ignore[attr-defined]  # not in its stubs

from fairlane import broker, database_faults
from fairlane.children import die_with_parent

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "fairlane.settings")

# The worker runs whatever its container runs as; its tasks are the project's own.
warnings.filterwarnings("ignore", category=SecurityWarning)

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


broker.register()
app = Celery("fairlane", task_cls=Regular)
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks(["metering", "fairlane"])


@signals.worker_ready.connect
def say_nothing_of_running_tasks(**_: object) -> None:
    """Celery warns at each loss of its broker that what runs goes on and is then given out again:
    that is as it should be. Its own set-up of logging would undo this."""
    warnings.filterwarnings("ignore", category=CPendingDeprecationWarning)


@signals.beat_embedded_init.connect
def end_with_worker(**_: object) -> None:
    """It is a process of its own, and would go on ordering work after a `kill -9` of its worker."""
    die_with_parent()
