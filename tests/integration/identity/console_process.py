"""A console on a socket that its parent has bound, with a database of its own: single sign-on is
chosen by settings, which a process reads once."""

from __future__ import annotations

import os
import sys

import django
import uvicorn
from django.core.management import call_command


def main(fd: int) -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "fairlane.settings")
    django.setup()
    from tenants import services
    from tests import builders

    call_command("migrate", verbosity=0)
    builders.apply_policy()
    _, _, token = services.create_user("ada", "admin", actor=builders.ROOT)
    print(token, flush=True)
    uvicorn.run("fairlane.asgi:application", fd=fd, log_level="warning", lifespan="off")


if __name__ == "__main__":
    main(int(sys.argv[1]))
