"""What a trial holds a product to: a table of truths, with what each should be and what it is."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.trials.caller import Call
from tests.trials.product import Books, monthly_costs


@dataclass
class Truths:
    """`held` are promises, `seen` only what there was."""

    rows: list[tuple[str, Any, Any, bool]] = field(default_factory=list)
    notes: list[tuple[str, Any]] = field(default_factory=list)

    def must(self, what: str, is_: Any, should: Any = 0) -> None:
        self.rows.append((what, should, is_, is_ == should))

    def at_most(self, what: str, is_: float, most: float) -> None:
        self.rows.append((what, f"≤ {most:.15g}", is_, is_ <= most))

    def at_least(self, what: str, is_: float, least: float) -> None:
        self.rows.append((what, f"≥ {least:.15g}", is_, is_ >= least))

    def note(self, what: str, value: Any) -> None:
        self.notes.append((what, value))

    @property
    def violated(self) -> list[str]:
        return [f"{what}: {is_}, not {should}" for what, should, is_, ok in self.rows if not ok]

    def show(self) -> None:
        for what, value in self.notes:
            print(f"  {what:58}{value!s:>14}")
        print(f"  {'truth':58}{'should be':>14}{'is':>14}")
        for what, should, is_, ok in self.rows:
            print(f"  {what:58}{shown(should):>14}{shown(is_):>14}{'' if ok else '   VIOLATED'}")


def shown(value: Any) -> str:
    return f"{value:.15g}" if isinstance(value, float) else str(value)


def counters(truths: Truths, product: Books) -> None:
    """Slots, reservations, and every counter against the ledger, to the unit."""
    rows = product.rows()
    truths.must("leaked slots", product.open_slots())
    truths.must("units still reserved", product.held())
    times = Counter(row["request_id"] for row in rows)
    truths.must("requests recorded twice", sum(n > 1 for n in times.values()))
    costs, stored = monthly_costs(rows), product.windows()
    truths.must("live counters off the ledger, units", product.off_the_ledger(rows))
    truths.must(
        "stored counters off the ledger, units", sum(abs(stored[a] - costs[a]) for a in costs)
    )
    truths.must("differences by `usage verify`", product.differences())


def answers(truths: Truths, product: Books, calls: list[Call]) -> None:
    """What callers saw and what the engine said, against the ledger."""
    rows = {row["request_id"]: row for row in product.rows()}
    said = product.said()
    known = [call for call in calls if call.request_id]
    served = [call for call in calls if call.served]
    truths.must("answered requests without a record", sum(c.request_id not in rows for c in known))
    truths.must("requests the engine got without a record", sum(i not in rows for i in said))
    mine = [(rows[c.request_id], said[c.request_id]) for c in served if c.request_id in rows]
    truths.must(
        "complete answers with another usage than the engine's",
        sum(not agrees(row, stub) for row, stub in mine),
    )
    truths.must(
        "complete answers recorded as something else", sum(r["status"] != 200 for r, _ in mine)
    )
    over = [
        row
        for row in rows.values()
        if row["usage_source"] != "estimated"
        and row["completion_tokens"] > said.get(row["request_id"], {"out": 0})["out"]
    ]
    truths.must("records of more output than the engine wrote", len(over))
    truths.must(
        "cost recorded other than of the tokens recorded", sum(map(odd_cost, rows.values()))
    )


def agrees(row: dict[str, Any], stub: dict[str, int]) -> bool:
    """Where the engine told no usage the prompt is estimated, and the output counted."""
    if row["usage_source"] == "engine" and row["prompt_tokens"] != stub["prompt"]:
        return False
    if row["usage_source"] == "estimated":
        return stub["whole"] == 1
    return row["completion_tokens"] == stub["out"]


def odd_cost(row: dict[str, Any]) -> bool:
    return row["cost"] != row["prompt_tokens"] + 2 * row["completion_tokens"]


def main(about: str | None, trial: Callable[..., Truths], **options: int) -> None:
    """Run a trial by itself: its table, and 1 where a truth is violated."""
    parser = argparse.ArgumentParser(description=about)
    for name, default in options.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    given = vars(parser.parse_args())
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="fairlane-trial-") as folder:
        truths = trial(Path(folder), **given)
    print(f"{' '.join(sys.argv[:1])} {given} ({time.monotonic() - began:.0f} s)")
    truths.show()
    sys.exit(1 if truths.violated else 0)
