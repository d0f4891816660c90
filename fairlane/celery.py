"""Celery for roll-ups, retention and checks; never on the request path."""

import os
import warnings

from celery import Celery
from celery.platforms import SecurityWarning  # type: ignore[attr-defined]  # not in its stubs

from fairlane import broker

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "fairlane.settings")

# The worker runs whatever its container runs as; its tasks are the project's own.
warnings.filterwarnings("ignore", category=SecurityWarning)

broker.register()
app = Celery("fairlane")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks(["metering", "fairlane"])
