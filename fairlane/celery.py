"""Celery for roll-ups, retention and checks; never on the request path."""

import os
import warnings

from celery import Celery, signals
from celery.exceptions import CPendingDeprecationWarning
from celery.platforms import SecurityWarning  # type: ignore[attr-defined]  # not in its stubs

from fairlane import broker
from fairlane.children import die_with_parent
from tenants.postgres import Session

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "fairlane.settings")

# The worker runs whatever its container runs as; its tasks are the project's own.
warnings.filterwarnings("ignore", category=SecurityWarning)


broker.register()
app = Celery("fairlane", task_cls="fairlane.background:Regular")  # loaded where tasks run
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks(["metering", "fairlane"])


@signals.worker_ready.connect
def say_nothing_of_running_tasks(**_: object) -> None:
    """Celery warns at each loss of its broker that what runs goes on and is then given out again:
    that is as it should be. Its own set-up of logging would undo this."""
    warnings.filterwarnings("ignore", category=CPendingDeprecationWarning)


@signals.worker_init.connect
def leave_silent_database(**_: object) -> None:
    """The longest question of a task, the daily check of all counters, takes some minutes."""
    Session.patience_s = 900.0


@signals.beat_embedded_init.connect
def end_with_worker(**_: object) -> None:
    """It is a process of its own, and would go on ordering work after a `kill -9` of its worker."""
    die_with_parent()
    Session.patience_s = 60.0  # it asks only whether the lock is still its own
