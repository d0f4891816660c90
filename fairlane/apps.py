from typing import Any

from django.apps import AppConfig
from django.db.models.signals import pre_migrate


class FairlaneConfig(AppConfig):
    name = "fairlane"

    def ready(self) -> None:
        pre_migrate.connect(wait_for_locks, sender=self)


def wait_for_locks(using: str, **_: Any) -> None:
    """A migration waits for as long as its tables are in use (`environment.POSTGRES`)."""
    from django.db import connections

    if connections[using].vendor == "postgresql":
        with connections[using].cursor() as cursor:
            cursor.execute("SET lock_timeout = 0")
