"""`python -m scheduling.simulate.server`: as `manage.py engine`, in a third of the start time."""

from __future__ import annotations

import sys
from argparse import ArgumentParser

from scheduling.simulate.profile import ProfileError
from scheduling.simulate.server.cli import ABOUT, add_arguments, start


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


parser = ArgumentParser("engine", description=ABOUT)
add_arguments(parser)
try:
    start(vars(parser.parse_args()), say)
except (ProfileError, OSError, OverflowError) as error:
    sys.exit(f"engine: {error}")
