"""What the commands share: who is acting, how a refusal is told, and JSON on stdout.

Exit status: 0 done, 1 there is a difference (`policy diff`), 2 refused and nothing changed.
"""

from __future__ import annotations

import getpass
import json
import os
import sys
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, ClassVar, NoReturn

from django.core.management.base import BaseCommand, CommandParser, OutputWrapper
from django.db import DatabaseError

from tenants.core.issue import Issue, short, told
from tenants.errors import Conflict, NotAllowed, NotFound, PolicyRefused
from tenants.services import Actor


class ActionCommand(BaseCommand):
    """A command with actions: `manage.py policy apply …` calls `apply(**options)`."""

    requires_system_checks = []  # they load every page's code
    actions: ClassVar[dict[str, str]] = {}  # name -> help

    def add_arguments(self, parser: CommandParser) -> None:
        chosen = parser.add_subparsers(dest="action", metavar="ACTION")
        for name, text in self.actions.items():
            action = chosen.add_parser(name, help=text, description=text)
            getattr(self, f"{name}_arguments", lambda _parser: None)(action)
            action.add_argument("--json", action="store_true", help="JSON on stdout")

    def handle(self, *_args: Any, **options: Any) -> None:
        if options["action"] is None:
            list_actions(self.stderr, self.actions)
        act: Callable[..., None] = getattr(self, options["action"])
        try:
            act(options)
        except PolicyRefused as refused:
            self.refuse_issues(refused, options)
        except BrokenPipeError:  # `| head`: the reader has enough
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        except OSError as error:
            known = error.filename and error.strerror
            self.refuse(f"{error.filename}: {error.strerror}" if known else str(error), options)
        except (Conflict, NotFound, NotAllowed, UnicodeDecodeError) as error:
            self.refuse(str(error), options)
        except DatabaseError as error:
            said = "the database that DATABASE_URL names is away or lacks tables (manage.py doctor)"
            self.refuse(f"{said}: {error}", options)

    def refuse_issues(self, refused: PolicyRefused, options: dict[str, Any]) -> NoReturn:
        issues = refused.issues
        if options["json"]:
            names = ("path", "line", "value", "message")
            self.emit({"issues": [{n: getattr(issue, n) for n in names} for issue in issues]})
        for issue in issues:
            self.stderr.write(str(issue))
        count = f"{len(issues)} issue{'s' if len(issues) != 1 else ''}"
        self.stderr.write(f"Refused: {count}, nothing was changed.")
        sys.exit(2)

    def refuse(self, message: str, options: dict[str, Any]) -> NoReturn:
        if options["json"]:
            self.emit({"error": message})
        self.stderr.write(f"Refused: {message}")
        sys.exit(2)

    def emit(self, value: Any) -> None:
        self.stdout.write(json.dumps(value, ensure_ascii=False, default=_text))

    def emit_indented(self, value: Any) -> None:
        self.stdout.write(json.dumps(value, ensure_ascii=False, default=_text, indent=2))


def list_actions(stderr: OutputWrapper, actions: Mapping[str, str]) -> NoReturn:
    """Of a command that was called without one."""
    stderr.write("Which ACTION? One of these; ACTION -h says more:")
    width = max(map(len, actions))
    for name, text in actions.items():
        stderr.write(f"  {name:{width}}  {text}")
    sys.exit(2)


def _text(value: Any) -> str:
    return value.isoformat() if isinstance(value, datetime) else str(value)


def change_arguments(parser: CommandParser) -> None:
    parser.add_argument("--reason", default="", help="why, for the audit entry")
    parser.add_argument("--author", default="", help="who; your login name when not given")


def actor(options: dict[str, Any]) -> Actor:
    """Whoever can run a command on the server has the database anyway: role admin."""
    name = options.get("author") or login_name()
    if len(name) > 150 or not name.isprintable():
        message = f"author is {short(name)}; it takes up to 150 plain characters"
        raise PolicyRefused([Issue("author", None, told(name), message)])
    return Actor(name, "command")


def login_name() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user without a name
        return "command line"
