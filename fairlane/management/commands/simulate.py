"""`manage.py simulate`: a trace through the scheduler and simulated engines, in virtual time."""

from __future__ import annotations

import json
import os
import sys
from argparse import ArgumentTypeError
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NoReturn

from django.core.management.base import BaseCommand, CommandParser

from fairlane.simulating import place, read_policy
from metering.core.predictor import OutputPredictor
from scheduling.simulate import profile as profiles
from scheduling.simulate import reading, table, workload
from scheduling.simulate.figures import Result, simulate
from scheduling.simulate.policies import POLICIES, Entry, entry
from scheduling.simulate.scenario import Scenario, plain
from scheduling.simulate.trace import Trace, TraceError
from tenants.core.issue import Invalid


def above_zero(text: str) -> float:
    value = float(text)
    if not 0 < value < 1e9:
        raise ArgumentTypeError(f"{text!r} is not a number above 0")
    return value


def count(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise ArgumentTypeError(f"{text!r} is not a whole number from 1")
    return int(text)


def schedulers(text: str) -> list[Entry]:
    found = [(name, entry(name.strip())) for name in text.split(",")]
    unknown = [name for name, one in found if one is None]
    if unknown:
        raise ArgumentTypeError(f"{unknown[0]!r} is none of: {', '.join(POLICIES)}, rpm-N")
    return [one for _, one in found if one is not None]


class Command(BaseCommand):
    help = "Replay a trace through the scheduler and simulated engines, in virtual time."
    requires_system_checks: list[str] = []  # it uses neither the database nor the pages

    def add_arguments(self, parser: CommandParser) -> None:
        add = parser.add_argument
        add("--policy", type=Path, help="policy file; without it: one pool, all weights 1")
        source = parser.add_mutually_exclusive_group(required=True)
        source.add_argument("--trace", type=Path, help="CSV or JSON lines: see docs/simulate.md")
        source.add_argument("--workload", choices=list(workload.WORKLOADS), help="made up")
        shipped = ", ".join(profiles.shipped())
        add("--engine", metavar="FILE", default="demo", help=f"profile: a file or {shipped}")
        add("--endpoints", type=count, default=1, help="engines, where no policy says how many")
        chosen = parser.add_mutually_exclusive_group()
        chosen.add_argument("--scheduler", type=schedulers, help="names, by comma; else fairlane")
        chosen.add_argument("--compare", action="store_true", help="every scheduler, in one table")
        add("--tier", help="for tenants that the policy does not have; else its last one")
        add("--tenants", type=count, default=reading.TENANTS, help="where the trace names none")
        add("--scale", type=above_zero, default=1.0, help="2: requests come twice as fast")
        add("--limit", type=count, help="only so many requests")
        add("--seed", type=int, default=1)
        add("--json", action="store_true", help="JSON on stdout")
        add("--html", type=Path, metavar="FILE", help="write a report with charts")

    def handle(self, *_args: Any, **options: Any) -> None:
        try:
            scenario, trace = self._prepare(options)
            entries = list(POLICIES.values()) if options["compare"] else options["scheduler"]
            results = [
                simulate(scenario, trace, one, OutputPredictor(), self._progress(one.name))
                for one in entries or [POLICIES["fairlane"]]
            ]
            if options["html"]:
                self._write_report(options["html"], trace, results)
        except (TraceError, profiles.ProfileError) as error:
            self._refuse(str(error))
        except Invalid as error:
            more = f" (and {len(error.issues) - 1} more)" if len(error.issues) > 1 else ""
            self._refuse(f"policy {options['policy']}: {error.issues[0]}{more}")
        except (OSError, UnicodeDecodeError) as error:
            self._refuse(str(error))
        try:
            self._print(trace, results, options["json"])
        except BrokenPipeError:  # `| head`: the reader has enough
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())

    def _prepare(self, options: dict[str, Any]) -> tuple[Scenario, Trace]:
        profile = profiles.load(options["engine"])
        if options["workload"]:
            trace = workload.named(options["workload"], options["seed"])
        else:
            trace = reading.read(options["trace"], options["tenants"], options["seed"])
        trace = trace.cut(options["limit"], options["scale"])
        if options["policy"] is None:
            return plain(trace, profile, options["endpoints"])
        placed = place(read_policy(options["policy"]), trace, profile, options["tier"])
        if not placed[1].arrivals:
            raise TraceError(f"trace {trace.name}: the policy leaves no request of it")
        return placed

    # --- telling ----------------------------------------------------------------------------

    def _print(self, trace: Trace, results: list[Result], as_json: bool) -> None:
        if as_json:
            told = {
                "trace": trace.name,
                "notes": trace.notes,
                "results": [result.as_json() for result in results],
            }
            self.stdout.write(json.dumps(told))
            return
        self.stdout.write(
            f"{trace.name}: {len(trace.arrivals)} requests in {trace.seconds:.0f} s "
            f"of {len({a.tenant for a in trace.arrivals})} tenants"
        )
        for note in trace.notes:
            self.stdout.write(f"note: {note}")
        self._lines(table.aligned(table.policies(results)))
        if len(results) == 1:
            self._lines(table.aligned(table.tenants(results[0])))
            if len(results[0].lanes) > 1:
                self._lines(table.aligned(table.lanes(results[0])))

    def _lines(self, lines: Iterable[str]) -> None:
        self.stdout.write("")
        for line in lines:
            self.stdout.write(line)

    def _write_report(self, path: Path, trace: Trace, results: list[Result]) -> None:
        from scheduling.simulate.report import page  # plotly takes half a second to load

        path.write_text(page(trace, results), encoding="utf-8")

    def _progress(self, name: str) -> Callable[[float], None]:
        if not sys.stderr.isatty():
            return lambda _part: None

        def show(part: float) -> None:
            end = "\r\033[K" if part >= 1 else ""
            self.stderr.write(f"\r{name}: {part:4.0%}{end}", ending="")
            self.stderr.flush()

        return show

    def _refuse(self, message: str) -> NoReturn:
        self.stderr.write(" ".join(message.split()))
        sys.exit(2)
