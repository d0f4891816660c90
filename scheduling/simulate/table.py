"""Results as text: one line a policy, and one line a tenant or a lane."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from scheduling.simulate.figures import Part, Result

POLICY_COLUMNS: tuple[tuple[str, Callable[[Result], str]], ...] = (
    ("policy", lambda r: r.policy),
    ("served", lambda r: str(r.ends.get("served", 0))),
    ("refused", lambda r: str(r.ends.get("refused", 0) + r.ends.get("too long", 0))),
    ("timed out", lambda r: str(r.ends.get("timed out", 0))),
    ("gap max", lambda r: f"{r.gap_max:.0f}"),
    ("gap avg", lambda r: f"{r.gap_avg:.0f}"),
    ("2U", lambda r: f"{r.bound:.0f}"),
    ("within", lambda r: "yes" if r.within_bound else "no"),
    ("diff max", lambda r: f"{r.difference_max:.0f}"),
    ("diff avg", lambda r: f"{r.difference_avg:.0f}"),
    ("Jain", lambda r: f"{r.jain:.3f}"),
    ("tokens/s", lambda r: f"{r.tokens_per_s:.0f}"),
    ("queue p50 s", lambda r: f"{r.queue_s.p50:.1f}"),
    ("queue p95 s", lambda r: f"{r.queue_s.p95:.1f}"),
    ("TTFT s", lambda r: f"{r.ttft_s.mean:.1f}"),
    ("response s", lambda r: f"{r.response_s.mean:.1f}"),
    ("busy", lambda r: f"{r.busy:.0%}"),
)
PART_COLUMNS: tuple[tuple[str, Callable[[Part], str]], ...] = (
    ("requests", lambda t: str(t.requests)),
    ("served", lambda t: str(t.served)),
    ("refused", lambda t: str(t.refused)),
    ("timed out", lambda t: str(t.timed_out)),
    ("service", lambda t: f"{t.service_units:.0f}"),
    ("share", lambda t: f"{t.share:.1%}"),
    ("queue p50 s", lambda t: f"{t.queue_s.p50:.1f}"),
    ("queue p95 s", lambda t: f"{t.queue_s.p95:.1f}"),
    ("TTFT p50 s", lambda t: f"{t.ttft_s.p50:.2f}"),
    ("TTFT p95 s", lambda t: f"{t.ttft_s.p95:.2f}"),
    ("response s", lambda t: f"{t.response_s.mean:.1f}"),
)


def policies(results: Sequence[Result]) -> list[list[str]]:
    """Cells, the header first."""
    heads = [head for head, _ in POLICY_COLUMNS]
    return [heads, *([cell(result) for _, cell in POLICY_COLUMNS] for result in results)]


def tenants(result: Result) -> list[list[str]]:
    rows = parts("tenant", result.tenants)
    weights = ["weight", *(f"{tenant.weight:g}" for tenant in result.tenants)]
    return [[row[0], weight, *row[1:]] for row, weight in zip(rows, weights, strict=True)]


def lanes(result: Result) -> list[list[str]]:
    return parts("lane", result.lanes)


def parts(what: str, of: Sequence[Part]) -> list[list[str]]:
    heads = [what, *(head for head, _ in PART_COLUMNS)]
    return [heads, *([part.name, *(cell(part) for _, cell in PART_COLUMNS)] for part in of)]


def aligned(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Lines, the first column to the left and the others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = [cell.rjust(width) for cell, width in zip(row, widths, strict=True)]
        yield "  ".join([row[0].ljust(widths[0]), *cells[1:]]).rstrip()


def markdown(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    yield "| " + " | ".join(rows[0]) + " |"
    yield "| --- |" + " ---: |" * (len(rows[0]) - 1)
    for row in rows[1:]:
        yield "| " + " | ".join(row) + " |"
