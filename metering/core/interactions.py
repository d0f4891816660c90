"""Interactions: the calls of one user action, throttled at the first of them and never in between.

Source: FairServe (Khan et al., arXiv 2411.15997); docs/metering.md, "Interactions".

1. An interaction belongs to one tenant: the same id under another tenant is another interaction.
2. It is opened by a call that passed every check. While it lives, its later calls go on.
3. It lives until `LIFE_S` after its latest call, and for at most `MOST_CALLS` calls; the next call
   of that id is a first call again.
4. A tenant has at most `MOST_OPEN` open at once. One more is not opened: its calls are decided one
   by one, and nothing that is open is broken off for it.
5. A call that was turned away after all never happened, also as a first one.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

LIFE_S = 900.0
MOST_CALLS = 64
MOST_OPEN = 1_000  # of one tenant


@dataclass(slots=True)
class Open:
    calls: int
    latest: float


class Interactions:
    """Those of one tenant, the one with the oldest latest call first."""

    __slots__ = ("_open",)

    def __init__(self) -> None:
        self._open: OrderedDict[str, Open] = OrderedDict()

    def __len__(self) -> int:
        return len(self._open)

    def goes_on(self, name: str, now: float) -> bool:
        """Whether a call of this interaction is a later one. Takes nothing."""
        self.forget(now)
        found = self._open.get(name)
        return found is not None and found.calls < MOST_CALLS

    def take(self, name: str, now: float) -> bool:
        """A call of it was admitted; False when it is not remembered."""
        self.forget(now)
        found = self._open.pop(name, None)
        if found is None and len(self._open) >= MOST_OPEN:
            return False
        calls = found.calls if found is not None and found.calls < MOST_CALLS else 0
        self._open[name] = Open(calls + 1, now if found is None else max(now, found.latest))
        return True

    def give_back(self, name: str) -> None:
        """The call that `take` counted was turned away."""
        found = self._open.get(name)
        if found is not None:
            found.calls -= 1
            if found.calls <= 0:
                del self._open[name]

    def forget(self, now: float) -> None:
        opened = self._open
        while opened and next(iter(opened.values())).latest + LIFE_S <= now:
            opened.popitem(last=False)
