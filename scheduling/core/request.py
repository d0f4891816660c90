"""One request inside the scheduler, and the life that it may lead.

1. LIFE is the whole life cycle; an event that a state does not list changes nothing.
2. A request ends once: after "settled" or "cancelled" nothing leads anywhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

from scheduling.core.model import Ticket

if TYPE_CHECKING:
    from scheduling.core.capacity import Endpoint
    from scheduling.core.counters import Flow
    from scheduling.core.lanes import Lane

State = Literal["queued", "running", "settled", "cancelled"]
Event = Literal["dispatch", "cancel", "settle"]

LIFE: Mapping[State, Mapping[Event, State]] = {
    "queued": {"dispatch": "running", "cancel": "cancelled"},
    "running": {"settle": "settled"},
    "settled": {},
    "cancelled": {},
}


class Request:
    """A ticket with its place: links of its queue while it waits, what it was charged after."""

    __slots__ = (
        "after",
        "before",
        "charged",
        "dispatched",
        "endpoint",
        "flow",
        "flow_step",
        "lane",
        "overtaken",
        "passed_by",
        "seq",
        "share_step",
        "since",
        "spent",
        "state",
        "ticket",
    )

    def __init__(self, ticket: Ticket, seq: int, now: float, lane: Lane, flow: Flow) -> None:
        self.ticket = ticket
        self.seq = seq  # order of arrival in the scheduler; breaks every tie
        self.since = now
        self.state: State = "queued"
        self.lane = lane
        self.flow = flow
        self.before: Request | None = None
        self.after: Request | None = None
        self.passed_by = 0.0  # service of those that went first because it fitted nowhere
        self.overtaken = 0.0  # service of those that went first for their prefix (locality.py)
        self.dispatched = 0  # tick of its dispatch
        self.endpoint: Endpoint | None = None
        self.charged = 0.0  # service units
        self.share_step = 0.0  # what `charged` added to its tenant's counter
        self.flow_step = 0.0  # and to its application's
        self.spent = 0.0  # what its dispatch took from the lane's credit

    def goes(self, event: Event) -> bool:
        """Take the step that `event` asks for; False when this state has no such step."""
        to = LIFE[self.state].get(event)
        if to is None:
            return False
        self.state = to
        return True
