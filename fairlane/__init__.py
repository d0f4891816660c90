"""The Django project: wiring only, no rules."""

from fairlane.celery import app as celery_app

__all__ = ["celery_app"]
