"""All the figures, one after the other: `make bench`, or `python -m tests.bench [NAME …]`.

Each module runs in a process of its own, prints its table and asserts nothing about time. All
load is on 127.0.0.1, bounded, and ends by itself. docs/benchmarks.md says what the figures mean.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time

from tests.acceptance.stack import ROOT

MODULES: dict[str, tuple[str, ...]] = {
    "fair_share": (),
    "gateway": ("--rounds", "2"),
    "call_log": (),
    "policy_work": (),
    "upstream": ("--rounds", "1"),
    "scheduler": (),
    "shared_shares": ("--seconds", "15"),
    "shared_latency": ("--rounds", "2"),
    "simulate": ("--quick",),  # whole: four minutes of CPU
    "auto_capacity": (),
    "records": ("--records", "10000", "--rounds", "3"),
    "stream_meter": (),
    "dashboards": ("--records", "20000", "--days", "3"),  # whole: see docs/benchmarks.md
    "console_pages": ("--scale", "0.1", "--over", "50"),
}
LONGEST_S = 900.0  # the gateway, with LiteLLM beside it


def main() -> int:
    wanted = sys.argv[1:] or list(MODULES)
    unknown = [name for name in wanted if name not in MODULES]
    if unknown:
        print(f"no benchmark {', '.join(unknown)}; there are: {', '.join(MODULES)}")
        return 2
    failed = [name for name in wanted if not run(name)]
    if failed:
        print(f"\ndid not end well: {', '.join(failed)}")
    return 1 if failed else 0


def run(name: str) -> bool:
    load = ", ".join(f"{figure:.1f}" for figure in os.getloadavg())
    print(f"\n=== {name} (load average before: {load})", flush=True)
    began = time.monotonic()
    command = [sys.executable, "-m", f"tests.bench.{name}", *MODULES[name]]
    try:
        status = subprocess.run(command, cwd=ROOT, timeout=LONGEST_S, check=False).returncode
    except subprocess.TimeoutExpired:
        print(f"stopped after {LONGEST_S:g} s")
        return False
    print(f"--- {time.monotonic() - began:.0f} s", flush=True)
    return status == 0


if __name__ == "__main__":
    sys.exit(main())
