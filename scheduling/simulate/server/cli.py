"""The command line of the engine, for `manage.py engine` and for `python -m` without Django."""

from __future__ import annotations

from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Callable, Mapping
from typing import Any

from scheduling.simulate.profile import load, shipped
from scheduling.simulate.server.app import Options
from scheduling.simulate.server.serve import bind, run

ABOUT = "A simulated engine with vLLM's endpoints; it makes up its answers and needs no GPU."


def add_arguments(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add("--host", default="127.0.0.1")
    add("--port", type=int, default=9101, help="0 takes any free one")
    add("--model", nargs="+", default=["demo-chat"], help="name, and further names for it")
    add("--profile", default="demo", help=f"a file, or one of: {', '.join(shipped())}")
    add("--scheduling-policy", choices=["fcfs", "priority"], default="priority")
    add("--api-key", help="what /v1 asks for")
    add("--seed", type=int, default=0, help="another seed gives other answers")
    add("--speed", type=_speed, default=1.0, help="2: twice as fast as the profile says")
    add("--max-num-queued-reqs", type=int, help="running and waiting; more get 503")


def start(given: Mapping[str, Any], say: Callable[[str], None]) -> None:
    """Serves until SIGINT or SIGTERM; `say` gets one line once it can be reached.

    Raises:
        ProfileError: the profile is wrong.
        OSError, OverflowError: the address can't be bound.
    """
    options = Options(
        profile=load(given["profile"]),
        models=tuple(given["model"]),
        policy=given["scheduling_policy"],
        api_key=given["api_key"],
        seed=given["seed"],
        speed=given["speed"],
        max_queued=given["max_num_queued_reqs"],
    )
    run(options, bind(given["host"], given["port"]), say)


def _speed(text: str) -> float:
    value = float(text)
    if not 0 < value < 1e6:
        raise ArgumentTypeError("takes a number above 0")
    return value
