"""The product's worker with less patience: what another took is its own after a second."""

from fairlane.celery import app

app.conf.broker_transport_options = {**app.conf.broker_transport_options, "visibility_timeout": 1}
