"""Every stored budget counter against the ledger: usage records and corrections.

1. Counter and ledger are read in one statement, hence at one moment: a batch that is saved
   meanwhile is in both or in neither, and a difference is never a matter of timing.
2. A window must be what the records in it say that name its account. Windows of one account that
   overlap (its period or zone was changed in one) are counted as one: a record is in one of them.
3. Only windows are checked whose records are all still kept.
4. A repair is made on the counter as it was seen, or not at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import groupby
from operator import itemgetter

from django.conf import settings
from django.db import IntegrityError, connection, transaction

from metering.core.cut import differ
from metering.core.windows import Window, window_at
from metering.models import BudgetWindow, Correction
from metering.restore import budget_index
from tenants.selectors import load_snapshot
from tenants.services import Actor, record_counter

HOUR = timedelta(hours=1)
RECENT = timedelta(minutes=15)  # how long after its end a window is still looked at every time
SHORT_KEPT = timedelta(days=1)  # windows shorter than an hour, many, are checked no further back
ATTEMPTS = 20
STORED = "stored"

NAMED = {  # what one usage record's accounts are called in a join
    "sqlite": "json_each(u.accounts) a",
    "postgresql": "jsonb_array_elements_text(u.accounts) a(value)",
}
COUNT = """
SELECT account, SUM(used), SUM(cost), SUM(counters) FROM (
  SELECT w.account, w.used, 0.0 AS cost, 1 AS counters FROM metering_budgetwindow w WHERE {windows}
  UNION ALL
  SELECT a.value, 0.0, u.cost, 0 FROM metering_usagerow u, {named}
  WHERE u.at >= %s AND u.at < %s AND u.cost > 0
  UNION ALL
  SELECT account, 0.0, units, 0 FROM metering_correction
  WHERE counter = '' AND at >= %s AND at < %s
) counted {which} GROUP BY account
"""
EXACT = "w.window_start = %s AND w.window_end = %s"
WITHIN = "w.window_start >= %s AND w.window_end <= %s"

Counted = tuple[str, float, float, int]  # account, counters' sum, ledger's sum, how many counters


@dataclass(frozen=True, slots=True)
class Difference:
    account: str
    window: Window
    counted: float
    ledger: float


@dataclass(slots=True)
class Spans:
    """What is to be checked: whole windows that many accounts share, and stretches of one account
    in which windows overlap."""

    ranges: set[Window] = field(default_factory=set)
    stretches: list[tuple[str, Window]] = field(default_factory=list)
    overlapping: set[tuple[str, Window]] = field(default_factory=set)
    missing: set[tuple[str, Window]] = field(default_factory=set)  # by policy it runs; no counter

    def counts(self, account: str, window: Window, counters: int) -> bool:
        key = (account, window)
        return key in self.missing or (counters > 0 and key not in self.overlapping)


def check(at: datetime, whole: bool = True) -> Iterator[Difference]:
    """Stored counters that are not what the ledger says. Not `whole`: of windows up to an hour
    long that run or have just ended, so that its cost does not grow with what is kept."""
    spans = find(at, whole)
    for window in sorted(spans.ranges, key=lambda each: (each.start, each.end)):
        for account, counted, ledger, counters in _count(EXACT, window):
            if spans.counts(account, window, counters) and differ(counted, ledger):
                yield Difference(account, window, counted, ledger)
    for account, stretch in spans.stretches:
        if found := difference(account, stretch):
            yield found


def find(at: datetime, whole: bool) -> Spans:
    oldest = at - timedelta(days=settings.FAIRLANE_KEEP_RECORDS_DAYS) + HOUR
    since = oldest if whole else at - RECENT - HOUR  # what overlaps a window in question is in
    rows = BudgetWindow.objects.filter(window_end__gt=since).order_by("account", "window_start")
    fields = ("account", "window_start", "window_end")
    spans, running = Spans(), set()
    by_account = groupby(rows.values_list(*fields).iterator(chunk_size=2000), itemgetter(0))
    for account, of_account in by_account:
        for windows in _stretches(Window(*moments) for _, *moments in of_account):
            stretch = Window(windows[0].start, max(window.end for window in windows))
            if stretch.end > at:
                running.add(account)
            if len(windows) > 1:
                spans.overlapping.update((account, window) for window in windows)
            if not _is_asked(stretch, at, oldest, whole):
                continue
            if len(windows) > 1:
                spans.stretches.append((account, stretch))
            else:
                spans.ranges.add(stretch)
    for account, window in _policy_windows(at):
        if account not in running and _is_asked(window, at, oldest, whole):
            spans.missing.add((account, window))
            spans.ranges.add(window)
    return spans


def _stretches(windows: Iterable[Window]) -> Iterator[list[Window]]:
    """Windows in the order of their start, those together that overlap."""
    together: list[Window] = []
    end = None
    for window in windows:
        if together and end is not None and window.start >= end:
            yield together
            together = []
        end = max(end, window.end) if together and end else window.end
        together.append(window)
    if together:
        yield together


def _is_asked(window: Window, at: datetime, oldest: datetime, whole: bool) -> bool:
    length = window.end - window.start
    if not whole:
        return length <= HOUR and window.end > at - RECENT
    return window.start >= oldest and (length >= HOUR or window.end > at - SHORT_KEPT)


def _policy_windows(at: datetime) -> Iterator[tuple[str, Window]]:
    for account, policy in budget_index(load_snapshot()).items():
        if policy.period is not None:
            yield account, window_at(policy.period, policy.timezone, at)


def difference(account: str, stretch: Window) -> Difference | None:
    for _, counted, ledger, _ in _count(WITHIN, stretch, account):
        if differ(counted, ledger):
            return Difference(account, stretch, counted, ledger)
    return None


def _count(windows: str, span: Window, account: str | None = None) -> list[Counted]:
    which = "" if account is None else "WHERE account = %s"
    sql = COUNT.format(windows=windows, named=NAMED[connection.vendor], which=which)
    when = connection.ops.adapt_datetimefield_value
    given = [when(span.start), when(span.end)] * 3 + ([] if account is None else [account])
    with connection.cursor() as cursor:
        cursor.execute(sql, given)
        rows: list[Counted] = cursor.fetchall()
    return rows


# --- mending --------------------------------------------------------------------------------


def repair(actor: Actor, found: Difference, reason: str) -> bool:
    """Set a counter to what the ledger says, with an audit entry. False: it changed all the time.

    Raises:
        tenants.errors.NotAllowed
    """
    for _ in range(ATTEMPTS):
        rows = _rows(found.account, found.window)  # before it is counted: a change shows in a swap
        counts = _count(WITHIN, found.window, found.account)
        if not counts or not differ(counts[0][1], counts[0][2]):
            return True
        _, counted, ledger, counters = counts[0]
        if counters == len(rows) and _set(actor, found, rows, (counted, ledger), reason):
            return True
    return False


def _rows(account: str, stretch: Window) -> list[tuple[int, float]]:
    rows = BudgetWindow.objects.filter(
        account=account, window_start__gte=stretch.start, window_end__lte=stretch.end
    )
    return list(rows.order_by("id").values_list("id", "used"))


class _Changed(Exception):
    """A counter moved since it was seen."""


def _set(
    actor: Actor,
    found: Difference,
    rows: list[tuple[int, float]],
    old_and_new: tuple[float, float],
    reason: str,
) -> bool:
    old, new = old_and_new
    try:
        with transaction.atomic():
            record_counter(actor, found.account, old, new, reason)
            _swap(found, rows, max(0.0, new))
            Correction.objects.create(
                account=found.account,
                at=found.window.start,
                units=new - old,
                counter=STORED,
                actor=actor.name,
                reason=reason,
            )
    except (_Changed, IntegrityError):
        return False
    return True


def _swap(found: Difference, rows: list[tuple[int, float]], left: float) -> None:
    """Of several windows that overlap, the newest takes what the others do not hold."""
    if not rows:
        BudgetWindow.objects.create(
            account=found.account,
            window_start=found.window.start,
            window_end=found.window.end,
            used=left,
        )
    for number, (row, used) in enumerate(rows, 1):
        new = left if number == len(rows) else min(used, left)
        left -= new
        if not BudgetWindow.objects.filter(id=row, used=used).update(used=new):
            raise _Changed
