"""Celery for roll-ups, retention and checks; never on the request path."""

import os

from celery import Celery

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "fairlane.settings")

app = Celery("fairlane")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks(["metering"])
