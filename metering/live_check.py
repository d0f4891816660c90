"""Each gateway's live counters against the ledger, while it runs.

1. A cut is compared when all that ended before it is saved and nothing that ended after it is. So
   whatever is busy, live and ledger must be equal; there is nothing to wait for or to tolerate.
2. Corrections reach ledger and counters at different moments: those that the cut does not contain
   yet are taken out of the ledger and added to the counter.
3. Where an account's period or zone was changed in a running window, its windows overlap and what
   counts in which is the gateway's affair: it is not compared until that window has ended.
4. A reservation belongs to a request that waits or that an engine was asked for.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from metering.core.accounts import LocalAccounts
from metering.core.cut import Cut, CutCounter, differ
from metering.core.windows import Window
from metering.journal import Journal
from metering.models import BudgetWindow, Correction, GatewayCheck

ACCOUNTS_A_CUT = 1_000
OPEN = "(open reservations)"


@dataclass(frozen=True, slots=True)
class LiveDifference:
    account: str
    start: datetime | None  # None: not of a window
    end: datetime | None
    counted: float
    ledger: float
    correction: int  # the newest that `counted` contains


class Cuts:
    """The gateway's part: all accounts in turn, some a cut."""

    def __init__(self, gateway: str, journal: Journal, accounts: LocalAccounts) -> None:
        self._gateway = gateway
        self._journal = journal
        self._accounts = accounts
        self._left: list[str] = []
        self._since: datetime | None = None

    def make(self, waiting: int, correction: int, at: datetime) -> None:
        """`waiting`: requests that hold a reservation and wait for a place. Call it where no
        request is half way through its end: in one step of the event loop."""
        if self._since is None:
            self._since, self._left = at, self._accounts.sustained()
        names, self._left = self._left[:ACCOUNTS_A_CUT], self._left[ACCOUNTS_A_CUT:]
        cut = Cut(
            gateway=self._gateway,
            at=at,
            since=self._since,
            last=not self._left,
            correction=correction,
            asked=self._accounts.open_reservations - waiting,
            counters=tuple(
                CutCounter(name, window.start, window.end, used)
                for name in names
                for window, used in self._accounts.windows(name)
            ),
        )
        self._journal.cut(cut)
        if cut.last:
            self._since = None


def compare(cut: Cut, asked: int) -> list[LiveDifference]:
    """`asked`: requests that the journal says are open. Keeps what differs for `verify`."""
    found = _differences(cut)
    if found and (again := _differences(cut)) != found:  # a correction came between two queries
        found = again
    if cut.asked != asked:
        found.append(LiveDifference(OPEN, None, None, cut.asked, asked, 0))
    _keep(cut, found)
    return found


def _differences(cut: Cut) -> list[LiveDifference]:
    names = {counter.account for counter in cut.counters}
    if not names:
        return []
    earliest = min(counter.start for counter in cut.counters)
    stored: defaultdict[str, dict[Window, float]] = defaultdict(dict)
    rows = BudgetWindow.objects.filter(account__in=names, window_end__gt=earliest)
    for account, start, end, used in rows.values_list(
        "account", "window_start", "window_end", "used"
    ):
        stored[account][Window(start, end)] = used
    late = list(Correction.objects.filter(id__gt=cut.correction, account__in=names))
    return list(_compared(cut, stored, late))


def _compared(
    cut: Cut, stored: dict[str, dict[Window, float]], late: list[Correction]
) -> Iterator[LiveDifference]:
    for counter in cut.counters:
        window = Window(counter.start, counter.end)
        known = stored.get(counter.account, {})
        if any(_overlap(window, other) for other in known):
            continue
        mine = [c for c in late if c.account == counter.account and c.at in window]
        ledger = known.get(window, 0.0) - sum(c.units for c in mine if not c.counter)
        counted = counter.used + sum(c.units for c in mine if c.counter == cut.gateway)
        if differ(counted, ledger):
            yield LiveDifference(
                counter.account, counter.start, counter.end, counted, ledger, cut.correction
            )


def _overlap(window: Window, other: Window) -> bool:
    return window != other and window.start < other.end and other.start < window.end


def _keep(cut: Cut, found: list[LiveDifference]) -> None:
    """What other cuts of the same round found stays; of this one's accounts, only what is true."""
    check, _ = GatewayCheck.objects.get_or_create(gateway=cut.gateway, defaults={"at": cut.at})
    looked_at = {counter.account for counter in cut.counters} | {OPEN}
    others = [each for each in check.differences if each["account"] not in looked_at]
    check.differences = [*_current(others, cut.at), *map(_plain, found)]
    check.at = cut.at
    if cut.last:
        check.whole_since = cut.since
    check.save()


def _current(differences: Iterable[dict[str, Any]], at: datetime) -> list[dict[str, Any]]:
    return [each for each in differences if datetime.fromisoformat(each["end"]) > at]


def _plain(difference: LiveDifference) -> dict[str, Any]:
    plain = asdict(difference)
    for name in ("start", "end"):
        plain[name] = plain[name] and plain[name].isoformat()
    return plain
