"""`manage.py engine`: the simulated engine as a process."""

from __future__ import annotations

from argparse import ArgumentParser, ArgumentTypeError
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from scheduling.simulate.profile import ProfileError, load, shipped
from scheduling.simulate.server.app import Options
from scheduling.simulate.server.serve import bind, run


def positive(text: str) -> float:
    value = float(text)
    if not 0 < value < 1e6:
        raise ArgumentTypeError("takes a number above 0")
    return value


class Command(BaseCommand):
    help = "A simulated engine with vLLM's endpoints; it makes up its answers and needs no GPU."
    requires_system_checks: list[str] = []  # it uses neither the database nor the policy

    def add_arguments(self, parser: ArgumentParser) -> None:
        add = parser.add_argument
        add("--host", default="127.0.0.1")
        add("--port", type=int, default=9101, help="0 takes any free one")
        add("--model", nargs="+", default=["demo-chat"], help="name, and further names for it")
        add("--profile", default="demo", help=f"a file, or one of: {', '.join(shipped())}")
        add("--scheduling-policy", choices=["fcfs", "priority"], default="priority")
        add("--api-key", help="what /v1 asks for")
        add("--seed", type=int, default=0, help="another seed gives other answers")
        add("--speed", type=positive, default=1.0, help="2: twice as fast as the profile")
        add("--max-num-queued-reqs", type=int, help="running and waiting; more get 503")

    def handle(self, *args: Any, **given: Any) -> None:
        try:
            options = Options(
                profile=load(given["profile"]),
                models=tuple(given["model"]),
                policy=given["scheduling_policy"],
                api_key=given["api_key"],
                seed=given["seed"],
                speed=given["speed"],
                max_queued=given["max_num_queued_reqs"],
            )
            sock = bind(given["host"], given["port"])
        except (ProfileError, OSError, OverflowError) as error:
            raise CommandError(f"engine: {error}") from error
        run(options, sock, self._say)

    def _say(self, line: str) -> None:
        self.stdout.write(line)
        self.stdout.flush()
