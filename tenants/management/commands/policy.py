"""Policy as code: export, diff, apply, history, rollback, schema."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any, ClassVar

from django.core.management.base import CommandParser

from tenants import selectors, services
from tenants.core import yaml_text
from tenants.core.document import canonical
from tenants.core.schema import json_schema
from tenants.management import plan
from tenants.management.shell import ActionCommand, actor, change_arguments

TOLD = ("changes", "warnings")


class Command(ActionCommand):
    help = "Policy as code: export, diff, apply, history, rollback, schema."
    actions: ClassVar = {
        "export": "print the policy in force, or that of revision REV, or write it to FILE",
        "diff": "what FILE (or revision REV) would change; exits 1 when there is a difference",
        "apply": "put FILE in force, whole or not at all",
        "history": "list the revisions, newest first",
        "rollback": "put revision REV in force again, as a new revision",
        "schema": "print the file's JSON Schema, for editors",
    }

    def export_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("target", nargs="?", metavar="FILE|REV", default="-")

    def diff_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("target", metavar="FILE|REV", help="- reads standard input")
        colour_argument(parser)

    def apply_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("target", metavar="FILE", help="- reads standard input")
        parser.add_argument("--dry-run", action="store_true", help="show the plan, change nothing")
        if_revision_argument(parser)
        change_arguments(parser)
        colour_argument(parser)

    def history_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--limit", type=int, default=50)

    def rollback_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("target", type=int, metavar="REV")
        if_revision_argument(parser)
        change_arguments(parser)
        colour_argument(parser)

    def export(self, options: dict[str, Any]) -> None:
        target = options["target"]
        if target.isdecimal():
            document = canonical(selectors.revision_document(int(target)))
        else:
            document = canonical(selectors.current_document())
        if options["json"]:
            self.emit(document)
        elif target == "-" or target.isdecimal():
            self.stdout.write(yaml_text.dump(document), ending="")
        else:
            Path(target).write_text(yaml_text.dump(document), encoding="utf-8")

    def diff(self, options: dict[str, Any]) -> None:
        data = self._document(options["target"])
        found = services.apply_document(data, actor=actor(options), dry_run=True)
        if options["json"]:
            self.emit({"revision": found.revision, **_plain(found)})
        elif found.changes:
            self._plan(found, options)
            self.stdout.write(plan.counted(found.changes))
        else:
            self.stdout.write(f"No difference from revision {found.revision}.")
        if found.changes:
            sys.exit(1)

    def apply(self, options: dict[str, Any]) -> None:
        data, dry_run = _read(options["target"]), options["dry_run"]
        self._told(
            services.apply_document(data, **_change(options), dry_run=dry_run), options, dry_run
        )

    def rollback(self, options: dict[str, Any]) -> None:
        self._told(services.rollback(options["target"], **_change(options)), options)

    def schema(self, options: dict[str, Any]) -> None:
        self.emit_indented(json_schema())

    def history(self, options: dict[str, Any]) -> None:
        revisions = selectors.history(max(options["limit"], 0))
        if options["json"]:
            fields = ("number", "at", "author", "source", "reason", "changes")
            self.emit([{name: getattr(one, name) for name in fields} for one in revisions])
            return
        for one in revisions:
            when = f"{one.at:%Y-%m-%d %H:%M:%S} UTC"
            what = f"{one.changes} changes" if one.changes != 1 else "1 change"
            row = f"{one.number:>5}  {when}  {one.author} ({one.source})  {what}  {one.reason}"
            self.stdout.write(row.rstrip())
        if not revisions:
            self.stdout.write("No revision yet: revision 0, the empty policy, is in force.")

    def _told(
        self, applied: services.Applied, options: dict[str, Any], dry_run: bool = False
    ) -> None:
        if options["json"]:
            self.emit({"revision": applied.revision, "created": applied.created, **_plain(applied)})
        elif not applied.changes:
            self.stdout.write(f"Nothing to change; revision {applied.revision} stands.")
        else:
            self._plan(applied, options)
            self.stdout.write(plan.counted(applied.changes))
            number = applied.revision
            done = f"Dry run: nothing was changed, revision {number} stands."
            self.stdout.write(done if dry_run else f"Revision {number} is in force.")

    def _plan(self, applied: services.Applied, options: dict[str, Any]) -> None:
        colour = plan.coloured(options, self.stdout.isatty())
        for line in plan.painted(plan.plan(applied.changes, applied.warnings), colour):
            self.stdout.write(line)

    def _document(self, target: str) -> dict[str, Any] | str:
        if target.isdecimal():
            return canonical(selectors.revision_document(int(target)))
        return _read(target)


def _read(target: str) -> str:
    return sys.stdin.read() if target == "-" else Path(target).read_text(encoding="utf-8")


def _plain(applied: services.Applied) -> dict[str, Any]:
    return {name: [asdict(each) for each in getattr(applied, name)] for name in TOLD}


def _change(options: dict[str, Any]) -> dict[str, Any]:
    expected = options["if_revision"]
    return {"actor": actor(options), "reason": options["reason"], "expected_revision": expected}


def if_revision_argument(parser: CommandParser) -> None:
    said = "refuse where another revision than this one is in force by now"
    parser.add_argument("--if-revision", type=int, metavar="N", help=said)


def colour_argument(parser: CommandParser) -> None:
    said = "in colour even where standard output is no terminal"
    parser.add_argument("--color", action="store_true", help=said)
