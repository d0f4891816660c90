"""Read a trace from CSV or JSON lines, in any of FORMATS.

1. The fields that a file has say which format it is in; the first one that fits is taken.
2. Times become seconds since the first arrival; rows of one moment keep the file's order.
3. A row that can't be read stops the reading, with its line, its field and its value.
4. Rows without a tenant are shared out by the rule of `assign`, the same in every run.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random

import msgspec

from scheduling.simulate.formats import FORMATS, Format
from scheduling.simulate.trace import Arrival, Fields, Row, Trace, TraceError

TENANTS = 20  # that a trace without tenants is shared out among


def read(path: str | Path, tenants: int = TENANTS, seed: int = 1) -> Trace:
    """The trace in a file; rows without a tenant are shared out among so many.

    Raises:
        TraceError: it can't be read, or a row is wrong.
    """
    path = Path(path)
    try:
        text = path.read_text("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise TraceError(f"trace {path}: {reason}") from error
    return parse(text, path.name, tenants, seed)


def parse(text: str, name: str, tenants: int = TENANTS, seed: int = 1) -> Trace:
    rows = _jsonl(text, name) if text.lstrip()[:1] == "{" else _csv(text, name)
    found: list[Arrival] = []
    skipped = 0
    reading: Format | None = None
    for line, row in rows:
        fields = Fields(row, f"trace {name}, line {line}")
        if reading is None:
            reading = _format(fields)
        arrival = reading(fields)
        if arrival is None:
            skipped += 1
        else:
            found.append(arrival)
    if not found:
        raise TraceError(f"trace {name}: no request is in it")
    notes = [f"{skipped} rows left out: they never reached an engine"] if skipped else []
    first = min(arrival.at for arrival in found)
    found = sorted((replace(a, at=a.at - first) for a in found), key=lambda a: a.at)
    if any(not arrival.tenant for arrival in found):
        found = list(assign(found, tenants, seed))
        notes.append(
            f"the trace names no tenants: shared out among {tenants}, the k-th with 1/k of the "
            f"first one's requests; a conversation stays with one tenant"
        )
    return Trace(name, tuple(found), tuple(notes))


def assign(arrivals: list[Arrival], tenants: int, seed: int) -> Iterator[Arrival]:
    """Give a tenant to arrivals that have none: the k-th is drawn with probability ~ 1/k, once
    per conversation (the first two blocks) or per request."""
    random = Random(seed)
    names = [f"tenant-{k:02}" for k in range(1, tenants + 1)]
    odds = [1 / k for k in range(1, tenants + 1)]
    conversations: dict[tuple[int, ...], str] = {}
    for arrival in arrivals:
        drawn = random.choices(names, odds)[0]
        if not arrival.tenant:
            if arrival.blocks:
                drawn = conversations.setdefault(arrival.blocks[:2], drawn)
            arrival = replace(arrival, tenant=drawn)
        yield arrival


def _format(fields: Fields) -> Format:
    missing = []
    for needs, parse in FORMATS:
        if needs <= fields.row.keys():
            return parse
        missing.append(needs)
    wanted = "; or ".join(", ".join(sorted(needs)) for needs in missing)
    raise TraceError(f"{fields.where}: has {', '.join(map(str, fields.row))}; a trace has {wanted}")


def _csv(text: str, name: str) -> Iterator[tuple[int, Row]]:
    reader = csv.DictReader(io.StringIO(text), strict=True)
    try:
        for row in reader:
            if None in row or None in row.values():
                raise TraceError(
                    f"trace {name}, line {reader.line_num}: "
                    f"has another number of fields than its header"
                )
            yield reader.line_num, {key.strip(): value.strip() for key, value in row.items()}
    except csv.Error as error:
        raise TraceError(f"trace {name}, line {reader.line_num}: not CSV: {error}") from error


def _jsonl(text: str, name: str) -> Iterator[tuple[int, Row]]:
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            row = msgspec.json.decode(line)
        except (msgspec.DecodeError, RecursionError) as error:
            raise TraceError(f"trace {name}, line {number}: not JSON: {error}") from error
        if not isinstance(row, dict):
            raise TraceError(f"trace {name}, line {number}: is no JSON object")
        yield number, row
