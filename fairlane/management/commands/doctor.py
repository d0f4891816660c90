"""`doctor`: looks at a running deployment and says, line by line, what is right and what is not."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand

from fairlane.doctor import examine
from fairlane.doctor.finding import Finding, State

WORDS: dict[State, str] = {"ok": "ok  ", "warn": "warn", "fail": "FAIL"}


class Command(BaseCommand):
    help = "Look at a running deployment: what is right, and what is not. Exits 1 on a failure."
    requires_system_checks = ()  # they are among its findings

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--json", action="store_true", help="findings as a JSON list")

    def handle(self, *args: Any, **options: Any) -> None:
        found = []
        for finding in examine():
            found.append(finding)
            if not options["json"]:
                self.stdout.write(self._line(finding))
        if options["json"]:
            self.stdout.write(json.dumps([finding._asdict() for finding in found], indent=2))
        if any(finding.state == "fail" for finding in found):
            raise SystemExit(1)

    def _line(self, finding: Finding) -> str:
        paint = {"ok": self.style.SUCCESS, "warn": self.style.WARNING, "fail": self.style.ERROR}
        line = f"{paint[finding.state](WORDS[finding.state])}  {finding.subject}: {finding.found}"
        return f"{line}\n      {finding.do}" if finding.do else line
