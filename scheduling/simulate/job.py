"""One request of a trace on its way through a simulation."""

from __future__ import annotations

from collections import defaultdict
from typing import Literal

from scheduling.core.model import Ticket
from scheduling.simulate.sequence import Request, Sequence
from scheduling.simulate.trace import Arrival
from tenants.core.snapshot import Cost

End = Literal["served", "refused", "timed out", "too long"]
Key = tuple[str, str, str]  # pool, lane, tenant: who is compared with whom
Service = defaultdict[Key, float]  # units
LEADING_TOKENS = 1024  # of a prompt, that tell whose prefix it shares


class Job:
    __slots__ = (
        "arrival",
        "blocks",
        "cost",
        "end",
        "ended_at",
        "expected",
        "granted_at",
        "key",
        "reason",
        "sequence",
        "ticket",
    )

    def __init__(self, arrival: Arrival, cost: Cost, salt: int) -> None:
        self.arrival = arrival
        self.cost = cost
        self.key: Key = (arrival.model, arrival.lane, arrival.tenant)
        self.blocks = tuple(salt + block for block in arrival.blocks)
        self.ticket: Ticket
        self.expected = 0  # output tokens that its charge at dispatch covers
        self.sequence: Sequence | None = None
        self.granted_at: float | None = None
        self.ended_at: float | None = None
        self.end: End | None = None
        self.reason = ""

    @property
    def prefix(self) -> int:
        """What leads its prompt, as a number that is not 0; 0 for nothing known."""
        if not self.blocks:
            return 0
        last = max(1, LEADING_TOKENS // self.arrival.block_tokens) - 1
        return self.blocks[min(last, len(self.blocks) - 1)] + 1

    @property
    def tokens(self) -> int:
        return self.arrival.prompt_tokens + self.arrival.output_tokens

    def request(self, priority: int) -> Request:
        arrival = self.arrival
        whole = arrival.prompt_tokens // arrival.block_tokens
        return Request(
            id=self.ticket.request_id,
            prompt_tokens=arrival.prompt_tokens,
            output_tokens=(arrival.output_tokens,),
            arrival=arrival.at,
            priority=priority,
            blocks=self.blocks[:whole],
        )

    def service(self, output: int) -> float:
        """Units, once its prompt is computed and so many tokens are out."""
        assert self.sequence is not None
        cost, cached = self.cost, self.sequence.cached_tokens
        fresh = self.arrival.prompt_tokens - cached
        return cost.input * fresh + cost.cached_input * cached + cost.output * output

    def price(self, output: int) -> float:
        """Units, as far as can be known before it runs."""
        return self.cost.input * self.arrival.prompt_tokens + self.cost.output * output
