"""From the journal into the database, behind the gateway's back; and back into the accounts.

1. A record is never dropped. While the database is away the journal keeps it; a record that the
   database refuses for its content is set aside in the journal's folder, and the rest goes on.
2. The gateway never waits for the database: only this thread does.
3. Recovery and every day's work are one code path: read the journal, save a batch, commit.
4. While the disk takes no more, records go into the database from memory. They come again from the
   file, if there is room once more, and count once.
"""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec
import structlog
from django.db import DataError, Error, IntegrityError, connections

from metering import store
from metering.core.cut import Cut
from metering.core.record import UsageRecord
from metering.journal import Journal, claim, file_name, folders
from metering.journal_reader import Ended, JournalReader, ended_in, set_aside
from metering.live_check import compare
from metering.restore import budget_index
from tenants.core.snapshot import BudgetPolicy, PolicySnapshot
from tenants.errors import NotFound
from tenants.selectors import past_snapshot

INTERVAL_S = 0.2
LONGEST_PAUSE_S = 5.0
SYNC_EVERY_S = 1.0
MOST_AT_ONCE = 2000  # records from memory

OnCut = Callable[[Cut], None]
OnBatch = Callable[[Sequence[Ended]], None]

log = structlog.get_logger(__name__)


class PolicyBudgets:
    """The budget of an account under the policy of the moment. A sustained one that was removed is
    remembered: requests that were let in under it still end. Safe from threads."""

    def __init__(self, policy: Callable[[], PolicySnapshot]) -> None:
        self._policy = policy
        self._mutex = threading.Lock()
        self._indexed: PolicySnapshot | None = None
        self._index: dict[str, BudgetPolicy] = {}

    def note(self) -> None:
        """Call it for each policy that comes into force: by the time that the first record let in
        under it is written, another may have taken its place."""
        with self._mutex:
            snapshot = self._policy()
            if snapshot is not self._indexed:
                past = {a: b for a, b in self._index.items() if b.period is not None}
                self._index, self._indexed = {**past, **budget_index(snapshot)}, snapshot

    def __call__(self, account: str) -> BudgetPolicy | None:
        if self._policy() is not self._indexed:
            self.note()
        return self._index.get(account)


class PastBudgets:
    """For what a dead gateway left: an account that policy has no more is the budget that it was
    under the revision its request was let in under. Else its counter would be too low where the
    budget comes back, as with a tenant that is taken out and put in again."""

    def __init__(self, budget_of: store.BudgetOf) -> None:
        self._budget_of = budget_of
        self._past: dict[str, BudgetPolicy] = {}
        self._read: set[int] = set()

    def note(self, batch: Sequence[Ended]) -> None:
        """Call it before the batch is saved."""
        unknown = {
            ended.record.policy_revision
            for ended in batch
            if any(self(account) is None for account in ended.record.accounts)
        }
        for revision in sorted(unknown - self._read):
            self._read.add(revision)
            with suppress(NotFound):
                self._past.update(budget_index(past_snapshot(revision)))

    def __call__(self, account: str) -> BudgetPolicy | None:
        return self._budget_of(account) or self._past.get(account)


def save_or_set_aside(batch: Sequence[Ended], budget_of: store.BudgetOf, base: Path) -> int:
    """Save a batch; where the database refuses the content of a record, all but that one.

    Raises:
        django.db.Error: the database is away; what is not saved yet can be saved again.
    """
    try:
        return store.save(batch, budget_of)
    except (DataError, IntegrityError, OverflowError) as error:
        if len(batch) > 1:
            half = len(batch) // 2
            halves = (batch[:half], batch[half:])
            return sum(save_or_set_aside(part, budget_of, base) for part in halves)
        return _save_cleaned(batch[0], budget_of, base, error)


def _save_cleaned(ended: Ended, budget_of: store.BudgetOf, base: Path, error: Exception) -> int:
    """PostgreSQL takes no NUL in text; without it the record counts like any other."""
    plain = msgspec.json.encode(ended.record).replace(b"\\u0000", b"")
    cleaned = Ended(msgspec.json.decode(plain, type=UsageRecord), plain)
    try:
        return store.save([cleaned], budget_of)
    except (DataError, IntegrityError, OverflowError):
        set_aside(base, ended.json)
        log.error("record_refused", request_id=ended.record.request_id, error=str(error))
        return 0


@dataclass(frozen=True, slots=True)
class Recovered:
    records: int = 0  # finished requests that the database did not have
    abandoned: int = 0  # open requests, now settled by their estimate


def recover(base: Path, budget_of: store.BudgetOf) -> Recovered:
    """Bring what dead gateways left under `base` into the database. A folder that cannot be read,
    as of a gateway that another user ran, stops no start: it is told, and tried at the next one.

    Raises:
        django.db.Error: the database is away; nothing is lost, the next start recovers it.
    """
    records = abandoned = 0
    past = PastBudgets(budget_of)
    for folder in folders(base):
        try:
            with claim(folder) as dead:
                found = _recover_one(folder, past) if dead else Recovered()
        except OSError as error:
            log.error("journal_cannot_recover", folder=str(folder), error=str(error))
            continue
        records, abandoned = records + found.records, abandoned + found.abandoned
    if records or abandoned:
        log.warning("journal_recovered", records=records, abandoned=abandoned)
    return Recovered(records, abandoned)


def _recover_one(folder: Path, past: PastBudgets) -> Recovered:
    reader = JournalReader(folder)
    records = _save_all(reader, past, on_batch=past.note)
    left = [_as_ended(entry.abandoned()) for entry in reader.open_entries()]
    past.note(left)
    abandoned = save_or_set_aside(left, past, folder.parent) if left else 0
    reader.close()
    shutil.rmtree(folder, ignore_errors=True)  # it may just be another process's find
    return Recovered(records, abandoned)


def _save_all(
    reader: JournalReader,
    budget_of: store.BudgetOf,
    on_cut: OnCut = lambda cut: None,
    on_batch: OnBatch = lambda batch: None,
) -> int:
    saved = 0
    while (batch := reader.read()) or reader.at_cut:
        if batch:
            on_batch(batch)
            saved += save_or_set_aside(batch, budget_of, reader.folder.parent)
        if cut := reader.commit():
            on_cut(cut)
    return saved


def _as_ended(record: UsageRecord) -> Ended:
    return Ended(record, msgspec.json.encode(record))


class LedgerWriter:
    """The thread that moves one live journal's records into the database."""

    def __init__(
        self,
        journal: Journal,
        budget_of: store.BudgetOf,
        interval_s: float = INTERVAL_S,
    ) -> None:
        self._journal = journal
        self._budget_of = budget_of
        self._interval_s = interval_s
        self._reader = JournalReader(journal.folder)
        self._progress = threading.Condition()
        self._early = self._reader.committed  # up to there records are saved, by reader or not
        self._done = self._reader.committed  # and its cuts are compared
        self._wanted = threading.Event()
        self._stopping = False
        self._synced_at = time.monotonic()
        self._failing_since: float | None = None
        self.differences = 0  # of the last cut that was compared
        self._thread = threading.Thread(target=self._run, name="ledger", daemon=True)

    def start(self) -> None:
        self._thread.start()

    @property
    def failing_s(self) -> float:
        """For how long the database has been away; 0 when it is there."""
        since = self._failing_since
        return 0.0 if since is None else time.monotonic() - since

    @property
    def behind_bytes(self) -> int:
        """Of the journal, that are not in the database yet."""
        number, size = self._journal.position()
        done, offset = self._reader.committed
        earlier = (self._journal.folder / file_name(n) for n in range(done, number))
        return sum(path.stat().st_size for path in earlier if path.exists()) + size - offset

    def flush(self, timeout: float) -> bool:
        """Wait until all that has ended by now is in the database, and the cuts made by now are
        compared; False: not within `timeout` seconds (it stays in the journal)."""
        target = self._journal.position()
        self._wanted.set()
        with self._progress:
            return self._progress.wait_for(lambda: self._done >= target, timeout)

    def stop(self, timeout: float) -> bool:
        """Write what there is, end the thread, let go of the journal. False: some of it stays in
        the journal, for the next start."""
        written = self.flush(timeout)
        self._stopping = True
        self._wanted.set()
        self._thread.join(timeout)
        ended = not self._thread.is_alive()
        if self._journal.unwritten_bytes and not written:
            log.error("records_lost", bytes=self._journal.unwritten_bytes)
        self._journal.close(discard=written and ended and not self._reader.open_requests)
        return written and ended

    def _run(self) -> None:
        pause = self._interval_s
        try:
            while not self._stopping:
                self._wanted.wait(pause)
                self._wanted.clear()
                pause = self._interval_s if self._round() else min(pause * 2, LONGEST_PAUSE_S)
        finally:
            self._reader.close()
            connections.close_all()

    def _round(self) -> bool:
        """Everything there is; False when the database is away."""
        try:
            self._journal.retry()
            _save_all(self._reader, self._budget_of, self._check)
            self._reader.commit()
            self._save_unwritten()
            self._sync()
        except Exception as error:  # whatever it is, the records wait in the journal
            self._fail(error)
            return False
        self._failing_since = None
        with self._progress:
            self._done = max(self._early, self._reader.committed)
            self._progress.notify_all()
        return True

    def _save_unwritten(self) -> None:
        if not self._journal.unwritten_bytes:
            return
        number, start = max(self._early, self._reader.committed)
        lines = self._journal.after((number, start))
        batch = ended_in(lines)
        for first in range(0, len(batch), MOST_AT_ONCE):
            some = batch[first : first + MOST_AT_ONCE]
            save_or_set_aside(some, self._budget_of, self._journal.folder.parent)
        self._early = number, start + len(lines)

    def _check(self, cut: Cut) -> None:
        """A check that fails takes nothing from the records; the next cut comes soon."""
        try:
            self.differences = len(compare(cut, self._reader.open_requests))
        except Error as error:
            log.error("ledger_check_failed", error=str(error))

    def _fail(self, error: Exception) -> None:
        connections.close_all()
        if self._failing_since is None:
            self._failing_since = time.monotonic()
            log.error(
                "ledger_cannot_write", error=str(error), exc_info=not isinstance(error, Error)
            )

    def _sync(self) -> None:
        if time.monotonic() - self._synced_at >= SYNC_EVERY_S:
            self._synced_at = time.monotonic()
            self._journal.sync()
