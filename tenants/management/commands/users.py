"""People and their roles."""

from __future__ import annotations

from typing import Any, ClassVar

from django.core.management.base import CommandParser

from tenants import services
from tenants.core.permissions import ROLES
from tenants.management.shell import ActionCommand, actor, change_arguments


class Command(ActionCommand):
    help = "People and their roles."
    actions: ClassVar = {"create": "make a user; prints password and API token once"}

    def create_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--username", required=True)
        parser.add_argument("--role", required=True, choices=ROLES)
        parser.add_argument("--tenant", help="for tenant-admin and tenant-viewer")
        change_arguments(parser)

    def create(self, options: dict[str, Any]) -> None:
        _, password, token = services.create_user(
            options["username"],
            options["role"],
            options["tenant"],
            actor=actor(options),
            reason=options["reason"],
        )
        said = {
            "username": options["username"],
            "role": options["role"],
            "tenant": options["tenant"],
            "password": password,
            "token": token,
        }
        if options["json"]:
            self.emit(said)
            return
        for name, value in said.items():
            if value is not None:
                self.stdout.write(f"{name}: {value}")
        self.stderr.write("Keep password and token now: they are not shown again.")
