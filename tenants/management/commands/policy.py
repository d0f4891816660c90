"""Policy as code: export, diff, apply, history, rollback."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any, ClassVar

from django.core.management.base import CommandParser

from tenants import selectors, services
from tenants.core import yaml_text
from tenants.core.diff import Change
from tenants.core.document import canonical
from tenants.management.shell import ActionCommand, actor, change_arguments


class Command(ActionCommand):
    help = "Policy as code: export, diff, apply, history, rollback."
    actions: ClassVar = {
        "export": "print the policy in force, or that of revision REV, or write it to FILE",
        "diff": "what FILE (or revision REV) would change; exits 1 when there is a difference",
        "apply": "put FILE in force, whole or not at all",
        "history": "list the revisions, newest first",
        "rollback": "put revision REV in force again, as a new revision",
    }

    def export_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("target", nargs="?", metavar="FILE|REV", default="-")

    def diff_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("target", metavar="FILE|REV", help="- reads standard input")

    def apply_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("target", metavar="FILE", help="- reads standard input")
        change_arguments(parser)

    def history_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--limit", type=int, default=50)

    def rollback_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("target", type=int, metavar="REV")
        change_arguments(parser)

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
            self.emit({"revision": found.revision, "changes": _plain(found.changes)})
        else:
            self._list(found.changes)
            same = f"No difference from revision {found.revision}."
            self.stdout.write(_counted(found.changes) if found.changes else same)
        if found.changes:
            sys.exit(1)

    def apply(self, options: dict[str, Any]) -> None:
        data = _read(options["target"])
        self._told(
            services.apply_document(data, actor=actor(options), reason=options["reason"]), options
        )

    def rollback(self, options: dict[str, Any]) -> None:
        self._told(
            services.rollback(options["target"], actor=actor(options), reason=options["reason"]),
            options,
        )

    def history(self, options: dict[str, Any]) -> None:
        revisions = selectors.history(max(options["limit"], 0))
        if options["json"]:
            fields = ("number", "at", "author", "source", "reason", "changes")
            self.emit([{name: getattr(one, name) for name in fields} for one in revisions])
            return
        for one in revisions:
            when = f"{one.at:%Y-%m-%d %H:%M:%S}"
            what = f"{one.changes} changes" if one.changes != 1 else "1 change"
            row = f"{one.number:>5}  {when}  {one.author} ({one.source})  {what}  {one.reason}"
            self.stdout.write(row.rstrip())
        if not revisions:
            self.stdout.write("No revision yet: revision 0, the empty policy, is in force.")

    def _told(self, applied: services.Applied, options: dict[str, Any]) -> None:
        if options["json"]:
            self.emit({**asdict(applied), "changes": _plain(applied.changes)})
        elif applied.created:
            self._list(applied.changes)
            self.stdout.write(f"Revision {applied.revision}: {_counted(applied.changes)}")
        else:
            self.stdout.write(f"Nothing to change; revision {applied.revision} stands.")

    def _list(self, changes: list[Change]) -> None:
        for change in changes:
            self.stdout.write(f"  {change}")

    def _document(self, target: str) -> dict[str, Any] | str:
        if target.isdecimal():
            return canonical(selectors.revision_document(int(target)))
        return _read(target)


def _read(target: str) -> str:
    return sys.stdin.read() if target == "-" else Path(target).read_text(encoding="utf-8")


def _plain(changes: list[Change]) -> list[dict[str, Any]]:
    return [asdict(change) for change in changes]


def _counted(changes: list[Change]) -> str:
    return f"{len(changes)} change{'s' if len(changes) != 1 else ''}."
