"""One HTTP call: its choices, and what the engine has produced for them so far."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from scheduling.simulate.sequence import Request, Sequence, State
from scheduling.simulate.server.answers import Answer
from scheduling.simulate.server.faults import Script

Event = tuple[int, int, bool]  # choice, its tokens so far, whether it has ended


@dataclass(slots=True)
class Part:
    """One prompt of the call, as the engine sees it; its first choice is number `first`."""

    call: Call
    request: Request
    first: int
    sequences: list[Sequence] = field(default_factory=list)

    def moved(self, sequence: Sequence) -> None:
        ended = sequence.state is State.FINISHED
        if ended or self.call.streams:
            self.call.tell((self.first + sequence.index, sequence.generated, ended))

    def finish_reason(self, sequence: Sequence) -> str:
        """As the engine's metrics tell it, which know no tool calls."""
        finish = self.call.answers[self.first + sequence.index].finish
        return "stop" if finish == "tool_calls" else finish


@dataclass(slots=True)
class Call:
    id: str
    created: int
    model: str
    streams: bool
    script: Script
    answers: list[Answer]
    generates: bool = True  # False: its one token is the end of reading the prompt, not output
    parts: list[Part] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)  # tokens told to the caller, per choice
    open: int = 0  # choices that have not ended
    _events: list[Event] = field(default_factory=list)
    _waiter: asyncio.Future[None] | None = None

    def __post_init__(self) -> None:
        self.counts = [0] * len(self.answers)
        self.open = len(self.answers)

    def tell(self, event: Event) -> None:
        self._events.append(event)
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def events(self) -> list[Event]:
        """What has happened since the last call; waits for something. [] once all have ended."""
        if not self.open:
            return []
        while not self._events:
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        events, self._events = self._events, []
        return events

    def told(self, event: Event) -> None:
        """The caller has been sent this much."""
        choice, tokens, ended = event
        self.counts[choice] = tokens
        self.open -= ended

    @property
    def prompt_tokens(self) -> int:
        return sum(part.request.prompt_tokens for part in self.parts)

    @property
    def cached_tokens(self) -> int:
        """Of each prompt's first choice: a prompt counts once, however many choices share it."""
        if self.script.cached_tokens is not None:
            return self.script.cached_tokens
        return sum(part.sequences[0].cached_tokens for part in self.parts)

    @property
    def completion_tokens(self) -> int:
        return sum(self.counts) if self.generates else 0

    def usage(self) -> dict[str, object]:
        return {
            "prompt_tokens": self.prompt_tokens,
            "total_tokens": self.prompt_tokens + self.completion_tokens,
            "completion_tokens": self.completion_tokens,
            "prompt_tokens_details": {"cached_tokens": self.cached_tokens},
        }
