"""The papers' comparisons, replayed: fairness, throughput and response time of every policy.

    .venv/bin/python -m tests.bench.simulate [--quick] [speed]

Prints the tables of docs/simulations.md. All of it is in virtual time, so that the
tables are the same on every machine; only the last one, the simulator's own speed, is not.
"""

from __future__ import annotations

import cProfile
import os
import pstats
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random

from metering.core.predictor import OutputPredictor
from scheduling.simulate import table
from scheduling.simulate.figures import Result, result, simulate
from scheduling.simulate.policies import POLICIES, QUANTUM, Entry, entry
from scheduling.simulate.profile import load
from scheduling.simulate.reading import read
from scheduling.simulate.scenario import Scenario, plain
from scheduling.simulate.simulation import Simulation
from scheduling.simulate.trace import Arrival, Trace
from scheduling.simulate.workload import Stream, named, synthesise

TRACES = Path(os.environ.get("FAIRLANE_TRACES", "../shared/traces"))
COLUMNS = (
    "policy", "served", "refused", "gap max", "gap avg", "2U", "within", "diff max", "diff avg",
    "Jain", "tokens/s", "queue p50 s", "TTFT s", "response s",
)  # fmt: skip
MATRICES: dict[str, Callable[[Result], str]] = {
    "Greatest gap, of 2U": lambda r: f"{r.gap_max / r.bound:.3f}",
    "Mean gap, of 2U": lambda r: f"{r.gap_avg / r.bound:.3f}",
    "Mean difference, units a second": lambda r: f"{r.difference_avg:.0f}",
    "Tokens a second while requests came": lambda r: f"{r.tokens_per_s:.0f}",
    "Mean response time, seconds": lambda r: f"{r.response_s.mean:.0f}",
    "Refused": lambda r: f"{1 - r.ends.get('served', 0) / r.requests:.0%}",
}
PAPER = (
    "two-overloaded",
    "short-and-long",
    "in-and-out",
    "joins-and-leaves",
    "on-off",
    "on-off-overload",
    "poisson-on-off",
    "ramp",
    "eight",
)
USUAL = ("fairlane", "vtc", "vtc-oracle", "fcfs", "rpm-5", "rpm-20", "rpm-30", "lcf",
         "round-robin", "fairserve", "dlpm")  # fmt: skip
LOCAL = ("fairlane", "vtc-local", "fcfs", "dlpm", "longest-prefix")


def run(placed: tuple[Scenario, Trace], names: Sequence[str]) -> list[Result]:
    scenario, trace = placed
    entries: list[Entry] = [one for name in names if (one := entry(name)) is not None]
    return [simulate(scenario, trace, one, OutputPredictor()) for one in entries]


def show(title: str, results: list[Result]) -> None:
    print(f"\n### {title}\n")
    print(f"{results[0].requests} requests in {results[0].offered_s:.0f} s.\n")
    heads, *rows = table.policies(results)
    kept = [heads.index(column) for column in COLUMNS]
    print("\n".join(table.markdown([[row[k] for k in kept] for row in (heads, *rows)])), flush=True)


def paper(quick: bool) -> dict[str, list[Result]]:
    found = {}
    engine = load("7b-a10g")
    for name in PAPER[:2] if quick else PAPER:
        trace = named(name)
        found[name] = run(plain(trace, engine), (*USUAL, "rpm-120"))
        show(f"{name}, on 7b-a10g", found[name])
    return found


def public(quick: bool) -> dict[str, list[Result]]:
    """Azure is scaled until one engine is overloaded; its tenants are drawn (reading.assign)."""
    limit = 1000 if quick else None
    arena = read(TRACES / "vtc_arena_27clients.csv").cut(limit, 1)
    conv = read(TRACES / "azure_2023_conv.csv").cut(limit or 8000, 5)
    code = read(TRACES / "azure_2023_code.csv").cut(limit or 4000, 6)
    cases = {
        "arena, 27 clients, on 7b-a10g": (arena, load("7b-a10g")),
        "azure-conv, 5 times as fast, on 8b-h100": (conv, load("8b-h100")),
        "azure-code, 6 times as fast, on 8b-h100": (code, load("8b-h100")),
    }
    found = {}
    for title, (trace, engine) in cases.items():
        found[title] = run(plain(trace, engine), USUAL)
        show(title, found[title])
    return found


def mooncake(quick: bool) -> dict[str, list[Result]]:
    found = {}
    for name, limit in (("conversation", 4000), ("synthetic", 3000)):
        trace = read(TRACES / f"mooncake_fast25_{name}.jsonl").cut(600 if quick else limit, 1)
        title = f"mooncake-{name}, on two 70b-8xh100"
        found[title] = run(plain(trace, load("70b-8xh100"), endpoints=2), LOCAL)
        show_cached(title, found[title])
    return found


def document_questions(quick: bool) -> dict[str, list[Result]]:
    found = {}
    for endpoints in (2, 4):
        title = f"documents, on {endpoints} 8b-h100"
        trace = documents(20 * endpoints, 30 if quick else 100)
        found[title] = run(plain(trace, load("8b-h100"), endpoints), LOCAL)
        show_cached(title, found[title])
    return found


def show_cached(title: str, results: list[Result]) -> None:
    show(title, results)
    cached = "  ".join(f"{r.policy} {r.cached_tokens / r.prompt_tokens:.1%}" for r in results)
    print(f"\nPrompt tokens found in a cache: {cached}", flush=True)


def documents(per_second: float, seconds: float) -> Trace:
    """Ten tenants ask about 40 documents each, of 4096 tokens: more than the caches hold."""
    random, at, arrivals = Random(1), 0.0, []
    while (at := at + random.expovariate(per_second)) < seconds:
        tenant, document = random.randrange(10), random.randrange(40)
        first = 64 * (40 * tenant + document)
        prompt, output = 4096 + random.randint(20, 200), random.randint(20, 100)
        blocks = tuple(range(first, first + 64))
        arrivals.append(
            Arrival(at, f"tenant-{tenant}", prompt, output, blocks=blocks, block_tokens=64)
        )
    return Trace("documents", tuple(arrivals))


def matrix(title: str, results: dict[str, list[Result]], cell: Callable[[Result], str]) -> None:
    """Policies down, workloads across."""
    print(f"\n### {title}\n")
    by_name = [{result.policy: cell(result) for result in found} for found in results.values()]
    names = list(dict.fromkeys(name for one in by_name for name in one))
    heads = ["policy", *(title.split(",")[0] for title in results)]
    rows = [[name, *(one.get(name, "") for one in by_name)] for name in names]
    print("\n".join(table.markdown([heads, *rows])), flush=True)


def costs(results: dict[str, list[Result]]) -> None:
    """Throughput beside that of first come first served, on what overloads the engine."""
    print("\n### What fairness costs\n")
    rows = [["workload", "fairlane / fcfs", "to the end", "vtc / fcfs", "vtc-oracle / fcfs"]]
    for title, found in results.items():
        by_name = {r.policy: r for r in found}
        base = by_name["fcfs"]
        cells = [by_name["fairlane"].tokens_per_s / base.tokens_per_s,
                 by_name["fairlane"].tokens_per_s_to_end / base.tokens_per_s_to_end,
                 *(by_name[n].tokens_per_s / base.tokens_per_s if n in by_name else 0.0
                   for n in ("vtc", "vtc-oracle"))]  # fmt: skip
        rows.append([title, *(f"{cell:.1%}" if cell else "" for cell in cells)])
    print("\n".join(table.markdown(rows)), flush=True)


def locality(results: dict[str, list[Result]]) -> None:
    print("\n### What locality is left\n")
    rows = [["workload", "vtc-local / longest-prefix", "to the end", "fairlane / longest-prefix",
             "gap: fairlane", "vtc-local", "longest-prefix", "2U + quantum"]]  # fmt: skip
    for title, found in results.items():
        by_name = {r.policy: r for r in found}
        fair, local, greedy = (by_name[n] for n in ("fairlane", "vtc-local", "longest-prefix"))
        parts = (
            local.tokens_per_s / greedy.tokens_per_s,
            local.tokens_per_s_to_end / greedy.tokens_per_s_to_end,
            fair.tokens_per_s / greedy.tokens_per_s,
        )
        gaps = (fair.gap_max, local.gap_max, greedy.gap_max, local.bound)
        rows.append([title, *(f"{x:.1%}" for x in parts), *(f"{gap:.0f}" for gap in gaps)])
    print("\n".join(table.markdown(rows)))
    print(f"\nQuantum: {QUANTUM:.0f} service units.", flush=True)


def an_hour(requests: int, tenants: int = 20) -> Trace:
    """Prompts of 100 to 2000 tokens, outputs of 20 to 400, the k-th tenant a little more often."""
    rate = requests / 3600 / tenants
    streams = tuple(
        Stream(f"tenant-{k:02}", rate * (0.5 + k / (tenants - 1)), prompt=(100, 2000),
               output=(20, 400), poisson=True)
        for k in range(tenants)
    )  # fmt: skip
    return synthesise("an hour", streams, 3600)


def timed(trace: Trace, endpoints: int, policy: str) -> tuple[Result, float, Simulation]:
    placed = plain(trace, load("8b-h100"), endpoints)
    began = time.process_time()
    made = Simulation(*placed, POLICIES[policy], OutputPredictor())
    told = result(made, made.run())
    return told, time.process_time() - began, made


def speed(quick: bool) -> None:
    print("\n### Speed of the simulator\n")
    trace = an_hour(10_000 if quick else 100_000)
    rows = [["load", "policy", "CPU s", "µs a request", "engine steps", "of them stepped",
             "queue p50 s"]]  # fmt: skip
    for load_name, endpoints in (("light, 4 engines", 4), ("overload, 1 engine", 1)):
        for policy in ("fairlane", "fcfs"):
            told, seconds, made = timed(trace, endpoints, policy)
            steps = sum(rig.engine.totals.steps for rig in made.rigs)
            calls = sum(rig.calls for rig in made.rigs)
            each = f"{seconds / told.requests * 1e6:.0f}"
            rows.append([load_name, policy, f"{seconds:.1f}", each, str(steps),
                         f"{calls / steps:.1%}", f"{told.queue_s.p50:.1f}"])  # fmt: skip
    print("\n".join(table.markdown(rows)), flush=True)
    where(replace(trace, arrivals=trace.arrivals[:20_000]))


def where(trace: Trace) -> None:
    """The profiler slows small functions more than large ones: shares, not times."""
    profiler = cProfile.Profile()
    profiler.enable()
    timed(trace, 4, "fairlane")
    profiler.disable()
    parts: Counter[str] = Counter()
    for (file, _, _), (_, _, own, _, _) in pstats.Stats(profiler).stats.items():  # type: ignore[attr-defined]
        parts[part_of(file)] += own
    total = sum(parts.values())
    print(
        "\nWhere the time goes: "
        + ", ".join(f"{n} {s / total:.0%}" for n, s in parts.most_common())
    )


def part_of(file: str) -> str:
    if "scheduling/core" in file:
        return "the scheduler's core"
    for name, modules in {
        "the engine model": ("engine", "decoding", "kv", "sequence", "profile"),
        "metrics": ("recorder", "figures"),
        "the event loop": ("simulation", "rig", "job", "fairlane", "predictor"),
    }.items():
        if Path(file).stem in modules:
            return name
    return "built-in functions"


def main() -> None:
    quick = "--quick" in sys.argv
    if "speed" not in sys.argv:
        results = paper(quick)
        local = {}
        if TRACES.is_dir():
            results |= public(quick)
            local |= mooncake(quick)
        else:
            print(f"\nNo {TRACES} (FAIRLANE_TRACES): without the public traces.")
        local |= document_questions(quick)
        for title, cell in MATRICES.items():
            matrix(title, results, cell)
        costs(results | local)
        locality(local)
    speed(quick)


if __name__ == "__main__":
    main()
