"""The counters of one gateway at one moment, to be held against the ledger.

A cut is a line in the journal: the `ended` lines before it are exactly the requests that its
counters hold, so that what the ledger says once those are saved must be the same to the unit.
"""

from __future__ import annotations

from datetime import datetime

import msgspec

ROUNDING = 1e-9  # part of an amount: sums of the same costs in another order


class CutCounter(msgspec.Struct, frozen=True):
    account: str
    start: datetime
    end: datetime
    used: float  # service units settled in the window


class Cut(msgspec.Struct, frozen=True, kw_only=True):
    gateway: str
    at: datetime
    since: datetime  # when the round over all accounts began that this is a part of
    last: bool  # of that round
    correction: int  # the newest one that the counters contain
    asked: int  # requests with an open reservation that do not wait for a place
    counters: tuple[CutCounter, ...]


def differ(counted: float, ledger: float) -> bool:
    return abs(counted - ledger) > ROUNDING * max(1.0, abs(counted), abs(ledger))
