"""The reading end of a journal folder: each `ended` line once, and which requests are open."""

from __future__ import annotations

import os
from collections import Counter
from contextlib import suppress
from pathlib import Path

import msgspec
import structlog

from metering.core.cut import Cut
from metering.core.record import UsageRecord
from metering.journal import (
    CUT,
    END,
    ENDED,
    OPENED,
    OpenEntry,
    Position,
    file_name,
    file_numbers,
)

CHUNK_BYTES = 2**20  # some thousand lines: large batches halve the cost of a row
UNREADABLE = "unreadable.jsonl"
OPENED_BYTES, ENDED_BYTES = len(OPENED), len(ENDED)
assert len(END) == 2  # a line's closing brace, and its end

log = structlog.get_logger(__name__)


class _Id(msgspec.Struct):
    request_id: str


_decode_id = msgspec.json.Decoder(_Id).decode
_decode_entry = msgspec.json.Decoder(OpenEntry).decode
_decode_cut = msgspec.json.Decoder(Cut).decode
_decode_record = msgspec.json.Decoder(UsageRecord).decode


class Ended(msgspec.Struct, frozen=True, gc=False):
    record: UsageRecord
    json: bytes  # the record as it was written


class JournalReader:
    """`read` gives what comes next, and the same again until `commit` says that it is in the
    database. `commit` returns the cut that the batch ends at, where it does."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._number, self._offset = next(iter(file_numbers(folder)), 1), 0
        self.committed: Position = (self._number, self._offset)
        self._fd = -1
        self._open: dict[str, tuple[int, bytes]] = {}  # request -> file it was opened in, entry
        self._opened_in: Counter[int] = Counter()  # file -> requests still open
        self._batch: list[Ended] = []  # read and not committed
        self._cut: Cut | None = None  # read and not committed; nothing after it is
        self._kept = {self._number}  # files not deleted

    def read(self) -> list[Ended]:
        """Some of what comes next, none of it past a cut; empty at the end of what is written, or
        where a cut (`at_cut`) comes next."""
        while not self._batch and not self._cut:
            later = [n for n in file_numbers(self.folder) if n > self._number]  # before the read
            begin = self._offset
            chunk = self._read_lines()
            if chunk:
                try:
                    self._batch = self._parse(chunk)
                except OSError:  # nowhere to set a line aside: all of it comes again
                    self._offset = begin
                    raise
            elif later:
                self._go_to_file(later[0])
            else:
                break
        return self._batch

    @property
    def at_cut(self) -> bool:
        return self._cut is not None

    def commit(self) -> Cut | None:
        ended_in = Counter[int]()
        for ended in self._batch:
            if opened := self._open.pop(ended.record.request_id, None):
                ended_in[opened[0]] += 1
        self._opened_in.subtract(ended_in)
        cut, self._batch, self._cut = self._cut, [], None
        self.committed = (self._number, self._offset)
        for number in [n for n in self._kept if n < self._number and self._opened_in[n] <= 0]:
            (self.folder / file_name(number)).unlink(missing_ok=True)
            self._kept.discard(number)
            del self._opened_in[number]
        return cut

    @property
    def open_requests(self) -> int:
        return len(self._open)

    def open_entries(self) -> list[OpenEntry]:
        """Of what is open; one that is damaged past its id is set aside like any other line."""
        found = []
        for _, entry in self._open.values():
            try:
                found.append(_decode_entry(entry))
            except msgspec.DecodeError as error:
                self._keep_unreadable(OPENED + entry + END[:-1], error)
        return found

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _read_lines(self) -> bytes:
        """Whole lines only; what follows the last line's end is read again next time."""
        if self._fd < 0:
            try:
                self._fd = os.open(self.folder / file_name(self._number), os.O_RDONLY)
            except FileNotFoundError:
                return b""
        size = CHUNK_BYTES
        while True:
            chunk = os.pread(self._fd, size, self._offset)
            whole = chunk.rfind(b"\n") + 1
            if whole or len(chunk) < size:
                self._offset += whole
                return chunk[:whole]
            size *= 2  # one line is longer than that

    def _go_to_file(self, number: int) -> None:
        self.close()
        self._number, self._offset = number, 0
        self._kept.add(self._number)

    def _parse(self, chunk: bytes) -> list[Ended]:
        """Some hundred thousand lines a second come through here: hence the local names, and no
        call for a line that begins as it should."""
        found = []
        opening, number = self._open, self._number
        begun = 0
        lines = chunk.split(b"\n")[:-1]
        for place, line in enumerate(lines, 1):
            try:
                if line.startswith(ENDED):
                    json = line[ENDED_BYTES:-1]
                    found.append(Ended(_decode_record(json), json))
                elif line.startswith(OPENED):
                    entry = line[OPENED_BYTES:-1]
                    opening[_decode_id(entry).request_id] = (number, entry)
                    begun += 1
                elif line.startswith(CUT):
                    self._cut = _decode_cut(line[len(CUT) : -1])
                    self._offset -= sum(len(later) + 1 for later in lines[place:])
                    break
                else:
                    raise msgspec.DecodeError("neither opened, ended nor cut")
            except msgspec.DecodeError as error:
                self._keep_unreadable(line, error)
        self._opened_in[number] += begun
        return found

    def _keep_unreadable(self, line: bytes, error: Exception) -> None:
        set_aside(self.folder.parent, line)
        log.error("journal_line_unreadable", folder=str(self.folder), error=str(error))


def ended_in(lines: bytes) -> list[Ended]:
    """Of whole lines that no reader has come to yet; what is damaged is left to the reader."""
    found = []
    for line in lines.split(b"\n"):
        if line.startswith(ENDED):
            with suppress(msgspec.DecodeError):
                json = line[ENDED_BYTES:-1]
                found.append(Ended(_decode_record(json), json))
    return found


def set_aside(base: Path, line: bytes) -> None:
    """Keep a line that no record can be made of, for a person to look at."""
    with (base / UNREADABLE).open("ab") as file:
        file.write(line + b"\n")
