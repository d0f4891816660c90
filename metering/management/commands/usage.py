"""`manage.py usage export`: usage records, streamed."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from metering import export, selectors


def moment(text: str) -> datetime:
    """ISO 8601; without an offset it is UTC, and a date alone is its first moment."""
    try:
        at = datetime.fromisoformat(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no time; it takes ISO 8601, such as 2026-11-29T18:00:00Z"
        ) from error
    return at.astimezone(UTC) if at.tzinfo else at.replace(tzinfo=UTC)


class Command(BaseCommand):
    help = "Usage records: export them as JSON lines or CSV."

    def add_arguments(self, parser: CommandParser) -> None:
        actions = parser.add_subparsers(dest="action", required=True)
        exporting = actions.add_parser("export", help="write usage records, oldest first")
        exporting.add_argument("--tenant", help="only this tenant's")
        exporting.add_argument("--since", type=moment, metavar="TIME", help="from then on")
        exporting.add_argument("--until", type=moment, metavar="TIME", help="before then")
        exporting.add_argument("--format", choices=("jsonl", "csv"), default="jsonl")
        exporting.add_argument("-o", "--output", type=Path, metavar="FILE", help="else: stdout")

    def handle(self, *args: Any, **options: Any) -> None:
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
