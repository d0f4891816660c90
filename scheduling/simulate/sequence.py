"""A request as the engine sees it, and the sequences (one per choice) that it runs as."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from scheduling.simulate.decoding import Decoding

Key = tuple[int, float, int]  # (priority, arrival, serial): the least goes first


@dataclass(frozen=True, slots=True)
class Request:
    """`output_tokens` has one length per choice, known to the engine only as it gets there.
    `blocks` are the chained hashes of the prompt's full KV blocks; () shares nothing."""

    id: str
    prompt_tokens: int
    output_tokens: tuple[int, ...] = (1,)
    arrival: float = 0.0
    priority: int = 0  # lower goes first, as in vLLM
    blocks: tuple[int, ...] = ()


class State(Enum):
    WAITING = "waiting"
    PREFILL = "prefill"
    DECODE = "decode"
    FINISHED = "finished"
    ABORTED = "aborted"


@dataclass(slots=True, eq=False)
class Sequence:
    request: Request
    index: int
    serial: int  # order of arrival at this engine, never reused
    key: Key
    length: int  # tokens it will generate
    state: State = State.WAITING
    computed: int = 0  # tokens whose KV is there; as of `joined` while it decodes
    output: int = 0  # tokens generated; as of `joined` while it decodes
    shared: int = 0  # leading blocks held under their hash
    blocks: int = 0  # blocks held in all while it prefills
    batch: Decoding | None = field(default=None, repr=False)
    joined: int = 0  # the batch's tick when it joined
    cached_tokens: int = 0  # prompt tokens found in the cache when first scheduled
    preemptions: int = 0
    scheduled_at: float | None = None
    first_token_at: float | None = None
    ended_at: float | None = None

    @property
    def generated(self) -> int:
        if self.batch is None:
            return self.output
        return self.output + self.batch.tick - self.joined

    @property
    def context(self) -> int:
        """Tokens whose KV is in the cache."""
        if self.batch is None:
            return self.computed
        return self.computed + self.batch.tick - self.joined

    @property
    def prefill_target(self) -> int:
        """What a prefill must compute: after a preemption, the output so far as well."""
        return self.request.prompt_tokens + self.output

    @property
    def running(self) -> bool:
        return self.state is State.PREFILL or self.state is State.DECODE
