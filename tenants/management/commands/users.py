"""People, their roles, and tokens for the admin API; also the way back in for who is locked out."""

from __future__ import annotations

from typing import Any, ClassVar

from django.core.management.base import CommandParser

from tenants import selectors, services
from tenants.core.permissions import ROLES
from tenants.errors import NotFound
from tenants.management.shell import ActionCommand, actor, change_arguments
from tenants.services.ends import DEFAULT_DAYS

Said = dict[str, Any]


class Command(ActionCommand):
    help = "People, their roles, and tokens for the admin API."
    actions: ClassVar = {
        "create": "make a user; prints password and API token once",
        "list": "everybody, with role and state",
        "role": "give a user another role",
        "disable": "end a user's sessions and refuse the token",
        "enable": "let a disabled user in again",
        "password": "print a one-time password, to be changed at the next sign-in",
        "authenticator": "forget a lost authenticator and its recovery codes",
        "unlock": "forget wrong passwords, so that the right one is taken at once",
        "token": "print a user's new API token; the one before is refused from now on",
        "service": "print a service token, which has a role of its own",
        "revoke": "refuse a service token from now on, for good",
    }

    def create_arguments(self, parser: CommandParser) -> None:
        role_arguments(parser)
        parser.add_argument(
            "--one-time", action="store_true", help="the password must be changed at first use"
        )

    def create(self, options: Said) -> None:
        _, password, token = services.create_user(
            options["username"],
            options["role"],
            options["tenant"],
            one_time=options["one_time"],
            **by(options),
        )
        names = ("username", "role", "tenant")
        said = {name: options[name] for name in names}
        self.tell_once({**said, "password": password, "token": token}, options)

    def list(self, options: Said) -> None:
        for user in selectors.people():
            role, tenant = selectors.role_of(user)
            said = {
                "username": user.get_username(),
                "role": role or None,
                "tenant": tenant,
                "enabled": user.is_active,
                "last_sign_in": user.last_login,
            }
            if options["json"]:
                self.emit(said)
            else:
                state = "enabled" if user.is_active else "disabled"
                words = (said["username"], said["role"] or "no role", said["tenant"] or "-", state)
                self.stdout.write("  ".join(words))

    def role_arguments(self, parser: CommandParser) -> None:
        role_arguments(parser)

    def role(self, options: Said) -> None:
        services.set_role(options["username"], options["role"], options["tenant"], **by(options))
        self.done(options, f"{options['username']} is {options['role']} from now on.")

    def disable_arguments(self, parser: CommandParser) -> None:
        user_arguments(parser)

    def disable(self, options: Said) -> None:
        services.set_enabled(options["username"], False, **by(options))
        self.done(options, f"{options['username']} is disabled.")

    def enable_arguments(self, parser: CommandParser) -> None:
        user_arguments(parser)

    def enable(self, options: Said) -> None:
        services.set_enabled(options["username"], True, **by(options))
        self.done(options, f"{options['username']} is enabled.")

    def password_arguments(self, parser: CommandParser) -> None:
        user_arguments(parser)

    def password(self, options: Said) -> None:
        made = services.reset_password(options["username"], **by(options))
        self.tell_once({"username": options["username"], "password": made}, options)

    def authenticator_arguments(self, parser: CommandParser) -> None:
        user_arguments(parser)

    def authenticator(self, options: Said) -> None:
        services.reset_totp(options["username"], **by(options))
        self.done(options, f"{options['username']} signs in by password until one is added.")

    def unlock_arguments(self, parser: CommandParser) -> None:
        user_arguments(parser)

    def unlock(self, options: Said) -> None:
        name = options["username"]
        count = services.unlock(name, **by(options))
        forgotten = f"{name}: {count} wrong password{'s' if count != 1 else ''} forgotten."
        self.done(options, forgotten if count else f"{name}: no wrong passwords count now.")

    def token_arguments(self, parser: CommandParser) -> None:
        user_arguments(parser)
        days_argument(parser)

    def token(self, options: Said) -> None:
        token, text = services.renew_token(
            options["username"], options["expires_days"], **by(options)
        )
        said = {"username": options["username"], "expires_at": token.expires_at, "token": text}
        self.tell_once(said, options)

    def service_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--name", required=True)
        parser.add_argument("--role", required=True, choices=ROLES)
        parser.add_argument("--tenant", help="for tenant-admin and tenant-viewer")
        days_argument(parser)
        change_arguments(parser)

    def service(self, options: Said) -> None:
        token, text = services.create_service_token(
            options["name"],
            options["role"],
            options["tenant"],
            options["expires_days"],
            **by(options),
        )
        said = {"name": token.name, "role": token.role, "tenant": options["tenant"]}
        self.tell_once({**said, "expires_at": token.expires_at, "token": text}, options)

    def revoke_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--name", required=True, help="of a service token")
        change_arguments(parser)

    def revoke(self, options: Said) -> None:
        found = selectors.service_tokens().filter(name=options["name"]).first()
        if found is None:
            raise NotFound(f"there is no service token {options['name']!r}")
        services.revoke_token(found.public_id, **by(options))
        self.done(options, f"The token {options['name']} is refused from now on.")

    def tell_once(self, said: Said, options: Said) -> None:
        if options["json"]:
            self.emit(said)
            return
        for name, value in said.items():
            if value is not None:
                self.stdout.write(f"{name}: {value}")
        self.stderr.write("Store what is shown above now: a password or token is not shown again.")

    def done(self, options: Said, text: str) -> None:
        if options["json"]:
            self.emit({"done": text})
        else:
            self.stdout.write(text)


def by(options: Said) -> Said:
    return {"actor": actor(options), "reason": options["reason"]}


def user_arguments(parser: CommandParser) -> None:
    parser.add_argument("--username", required=True)
    change_arguments(parser)


def role_arguments(parser: CommandParser) -> None:
    user_arguments(parser)
    parser.add_argument("--role", required=True, choices=ROLES)
    parser.add_argument("--tenant", help="for tenant-admin and tenant-viewer")


def days_argument(parser: CommandParser) -> None:
    parser.add_argument("--expires-days", type=float, default=DEFAULT_DAYS)
