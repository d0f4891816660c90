"""`manage.py engine`: the simulated engine as a process."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from scheduling.simulate.profile import ProfileError
from scheduling.simulate.server.cli import ABOUT, add_arguments, start


class Command(BaseCommand):
    help = ABOUT
    requires_system_checks: list[str] = []  # it uses neither the database nor the policy

    def add_arguments(self, parser: ArgumentParser) -> None:
        add_arguments(parser)

    def handle(self, *args: Any, **given: Any) -> None:
        try:
            start(given, self._say)
        except (ProfileError, OSError, OverflowError) as error:
            raise CommandError(f"engine: {error}") from error

    def _say(self, line: str) -> None:
        self.stdout.write(line)
        self.stdout.flush()
