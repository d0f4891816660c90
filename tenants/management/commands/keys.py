"""API keys: create, list, rotate, revoke."""

from __future__ import annotations

from typing import Any, ClassVar

from django.core.management.base import CommandParser

from tenants import selectors, services
from tenants.core.keys import id_in
from tenants.management.shell import ActionCommand, actor, change_arguments
from tenants.models import ApiKey

KEY_ID = "such as q86zyefi2xrm, also as `keys list` shows it: fl_q86zyefi2xrm_…"


class Command(ActionCommand):
    help = "API keys: create, list, rotate, revoke. A secret is printed once and stored nowhere."
    actions: ClassVar = {
        "create": "make a key; prints it once, as JSON",
        "list": "all keys, or a tenant's",
        "rotate": "give a key a new secret; prints it once, as JSON",
        "revoke": "refuse a key from now on, for good",
    }

    def create_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--tenant", required=True)
        parser.add_argument("--application")
        parser.add_argument("--name", default="")
        parser.add_argument("--expires-days", type=float)
        change_arguments(parser)

    def list_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--tenant")

    def rotate_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("key_id", metavar="KEY_ID", help=KEY_ID)
        parser.add_argument(
            "--grace-hours", type=float, default=0, help="how long the old secret works on"
        )
        change_arguments(parser)

    def revoke_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("key_id", metavar="KEY_ID", help=KEY_ID)
        change_arguments(parser)

    def create(self, options: dict[str, Any]) -> None:
        key, secret = services.create_key(
            options["tenant"],
            options["application"],
            options["name"],
            options["expires_days"],
            actor=actor(options),
            reason=options["reason"],
        )
        self._told_once(key, secret, options)

    def rotate(self, options: dict[str, Any]) -> None:
        key, secret = services.rotate_key(
            id_in(options["key_id"]),
            options["grace_hours"],
            actor=actor(options),
            reason=options["reason"],
        )
        self._told_once(key, secret, options)

    def revoke(self, options: dict[str, Any]) -> None:
        key = services.revoke_key(
            id_in(options["key_id"]), actor=actor(options), reason=options["reason"]
        )
        if options["json"]:
            self.emit(described(key))
        else:
            self.stdout.write(f"Key {key.public_id} is revoked.")

    def list(self, options: dict[str, Any]) -> None:
        keys = list(selectors.keys(options["tenant"]))
        if options["json"]:
            self.emit([described(key) for key in keys])
            return
        for key in keys:
            owner = f"{key.tenant.name}/{key.application.name}" if key.application else key.tenant
            ends = f"until {key.expires_at:%Y-%m-%d %H:%M} UTC" if key.expires_at else "no end"
            row = f"{key.masked}  {owner}  {key.state}  {ends}  {key.name}"
            self.stdout.write(row.rstrip())

    def _told_once(self, key: ApiKey, secret: str, options: dict[str, Any]) -> None:
        said = {"id": key.public_id, "key": secret, **described(key)}
        if options["json"]:
            self.emit(said)
        else:
            self.emit_indented(said)
            self.stderr.write("Keep the key now: it is not shown again.")


def described(key: ApiKey) -> dict[str, Any]:
    return {
        "id": key.public_id,
        "tenant": key.tenant.name,
        "application": key.application.name if key.application else None,
        "name": key.name,
        "state": key.state,
        "created_at": key.created_at.isoformat(),
        "expires_at": key.expires_at.isoformat() if key.expires_at else None,
        "revoked_at": key.revoked_at.isoformat() if key.revoked_at else None,
    }
