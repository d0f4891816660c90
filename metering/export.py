"""Usage records as text: one JSON object a line, or CSV. Field names are the contract's."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any, Literal

import msgspec

from metering.core.record import UsageRecord
from tenants.core.text import no_formula, taken

Format = Literal["jsonl", "csv"]
FIELDS = tuple(name for name in UsageRecord.__struct_fields__ if name != "accounts")


def lines(records: Iterable[UsageRecord], style: Format) -> Iterator[str]:
    """Each with its line end; a CSV begins with its header."""
    return _csv(records) if style == "csv" else _jsonl(records)


def _jsonl(records: Iterable[UsageRecord]) -> Iterator[str]:
    for record in records:
        yield msgspec.json.encode(_fields(record)).decode() + "\n"


def _csv(records: Iterable[UsageRecord]) -> Iterator[str]:
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, FIELDS, lineterminator="\n")
    writer.writeheader()
    for record in records:
        yield taken(buffer)
        writer.writerow({name: _cell(value) for name, value in _fields(record).items()})
    yield taken(buffer)


def _cell(value: Any) -> Any:
    """Callers choose a record's model and interaction, and a spreadsheet may open the file."""
    if isinstance(value, datetime):
        return value.isoformat().replace("+00:00", "Z")
    return no_formula(value) if isinstance(value, str) else value


def _fields(record: UsageRecord) -> dict[str, Any]:
    return {name: getattr(record, name) for name in FIELDS}
