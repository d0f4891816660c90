"""One library of functions: both rooms' text and the gateway's own, and the way to them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from metering.shared import library as accounts
from metering.shared.accounts import Call as AccountsCall
from scheduling.shared.library import SOURCE, Library
from scheduling.shared.link import Call, Link

OWN = (Path(__file__).parent / "admit.lua").read_text()


def whole_library() -> Library:
    return Library("\n".join((SOURCE, accounts.source(), OWN)))


class AccountsLine:
    """`metering.shared.accounts.Line` on the scheduler's link: one order for all calls."""

    def __init__(self, link: Link) -> None:
        self._link = link

    def send(
        self,
        call: AccountsCall,
        then: Callable[[Any], None] | None = None,
        failed: Callable[[Exception], None] | None = None,
    ) -> None:
        verb, key, message = call
        payload = verb.encode() + b" " + message
        self._link.send(Call("accounts", (key,), lambda: payload, then or ignored, failed))


def ignored(_: Any) -> None:
    """Nobody asked."""
