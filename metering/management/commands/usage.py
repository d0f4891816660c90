"""`manage.py usage`: export usage records, roll them up, hold every counter against them."""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from metering import corrections, export, selectors, verify
from metering.ledger_check import STORED
from metering.rollup import roll_up_range
from metering.verify import Finding
from tenants.management.shell import actor, change_arguments, list_actions
from tenants.moments import read_moment

PAUSE_S = 0.25


def moment(text: str) -> datetime:
    """ISO 8601; without an offset it is UTC, and a date alone is its first moment."""
    at = read_moment(text)
    if at is None:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no time; it takes ISO 8601, such as 2026-11-29T18:00:00Z"
        )
    return at


ACTIONS = {
    "export": "write usage records, oldest first",
    "rollup": "count a range's roll-ups again from its records, and what is due",
    "verify": "compare budget counters with the records; exit 1 where they differ",
    "correct": "add to what a sustained budget used, or give back, as a ledger entry",
}


class Command(BaseCommand):
    help = "Usage records: export them, roll them up, check the counters against them."

    def add_arguments(self, parser: CommandParser) -> None:
        chosen = parser.add_subparsers(dest="action", metavar="ACTION")
        exporting, rolling, verifying, correcting = (
            chosen.add_parser(name, help=text, description=text) for name, text in ACTIONS.items()
        )
        exporting.add_argument("--tenant", help="only this tenant's")
        exporting.add_argument("--since", type=moment, metavar="TIME", help="from then on")
        exporting.add_argument("--until", type=moment, metavar="TIME", help="before then")
        exporting.add_argument("--format", choices=("jsonl", "csv"), default="jsonl")
        exporting.add_argument("-o", "--output", type=Path, metavar="FILE", help="else: stdout")
        rolling.add_argument("--since", type=moment, metavar="TIME", required=True)
        rolling.add_argument("--until", type=moment, metavar="TIME", help="before then (now)")
        verifying.add_argument("--repair", action="store_true", help="set them to the records")
        verifying.add_argument("--json", action="store_true", help="JSON on stdout")
        verifying.add_argument(
            "--wait",
            type=float,
            default=30.0,
            metavar="SECONDS",
            help="for running gateways to compare theirs (30)",
        )
        change_arguments(verifying)
        correcting.add_argument("--account", required=True, help="e.g. tenant:acme/hourly")
        correcting.add_argument("--units", type=float, required=True, help="below zero: give back")
        correcting.add_argument("--id", help="any text: under one id it is made once")
        correcting.add_argument("--json", action="store_true", help="JSON on stdout")
        change_arguments(correcting)

    def handle(self, *args: Any, **options: Any) -> None:
        if options["action"] is None:
            list_actions(self.stderr, ACTIONS)
        act: Callable[[dict[str, Any]], None] = getattr(self, options["action"])
        act(options)

    def verify(self, options: dict[str, Any]) -> None:
        began = datetime.now(UTC)
        findings = list(verify.stored(began))
        deadline = time.monotonic() + options["wait"]
        silent = verify.wait_for_gateways(began, lambda: _pause(deadline))
        findings += verify.live(datetime.now(UTC))
        left = findings
        if options["repair"]:
            reason = options["reason"] or "usage verify --repair"
            findings.sort(key=lambda finding: finding.where == STORED)  # those come last
            left = [f for f in findings if not verify.repair(actor(options), f, reason)]
        remaining = [finding for finding in left if finding.where == STORED]
        verify.raise_alerts(remaining, whole=True, at=datetime.now(UTC))
        self._tell(findings, left if options["repair"] else None, silent, options["json"])
        if left:
            sys.exit(1)

    def _tell(
        self,
        findings: list[Finding],
        left: list[Finding] | None,
        silent: list[str],
        as_json: bool,
    ) -> None:
        rows = [finding.row() for finding in findings]
        if left is not None:
            for row, finding in zip(rows, findings, strict=True):
                row["repaired"] = finding not in left
        if as_json:
            told = {"differences": rows, "gateways_not_compared": silent}
            self.stdout.write(json.dumps(told))
            return
        for row in rows:
            self.stdout.write("  ".join(f"{name}={value}" for name, value in row.items()))
        for name in silent:
            self.stderr.write(f"{name}: has not compared its live counters; they are not in this.")
        self.stdout.write(f"{len(rows)} counters differ from the ledger.")

    def correct(self, options: dict[str, Any]) -> None:
        account, at = options["account"], datetime.now(UTC)
        try:
            used = corrections.correct(
                actor(options), account, options["units"], options["reason"], at, options["id"]
            ).used
        except corrections.CannotCorrect as error:
            raise CommandError(str(error)) from error
        if options["json"]:
            self.stdout.write(json.dumps({"account": account, "used": used}))
        else:
            self.stdout.write(f"{account}: {used:,.12g} units used in its window now.")

    def rollup(self, options: dict[str, Any]) -> None:
        since, until = options["since"], options["until"] or datetime.now(UTC)
        if since >= until:
            raise CommandError(f"--since is {since.isoformat()}; it takes a time before --until")
        minutes = roll_up_range(since, until)
        self.stdout.write(f"{minutes} minutes counted again.")

    def export(self, options: dict[str, Any]) -> None:
        if not selectors.knows_tenant(options["tenant"]):
            raise CommandError(
                f"--tenant is {options['tenant']!r}; it takes a tenant of the policy, or one that "
                "has left it and whose records are still kept"
            )
        records = selectors.export_records(options["tenant"], options["since"], options["until"])
        lines = export.lines(records, options["format"])
        if options["output"] is None:
            self._print(lines)
        else:
            _write_whole(options["output"], lines)

    def _print(self, lines: Iterable[str]) -> None:
        try:
            for line in lines:
                self.stdout.write(line, ending="")
        except BrokenPipeError:  # `| head`: the reader has enough
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _pause(deadline: float) -> bool:
    time.sleep(PAUSE_S)
    return time.monotonic() < deadline


def _write_whole(path: Path, lines: Iterable[str]) -> None:
    """The file appears, or is replaced, when it is complete; never half of it.

    Raises:
        CommandError: it cannot be written.
    """
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    except OSError as error:
        raise CommandError(f"cannot write {path}: {error.strerror}") from error
    young = Path(name)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.writelines(lines)
        young.chmod(0o666 & ~_umask())
        young.replace(path)
    except OSError as error:
        raise CommandError(f"cannot write {path}: {error.strerror}") from error
    finally:
        young.unlink(missing_ok=True)


def _umask() -> int:
    mask = os.umask(0o022)
    os.umask(mask)
    return mask
