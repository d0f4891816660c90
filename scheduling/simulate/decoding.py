"""The sequences that gain one token per step, advanced together.

1. Every member gains one token per tick, so progress is the batch's tick, not a loop over members.
2. A member takes a new KV block in exactly those ticks that start with its context at a multiple
   of the block size; members are counted by that phase, so a tick's need is one look-up.
3. Ticks until the first member ends and until blocks run short are known in advance: a stretch of
   many ticks equals as many single ones.
"""

from __future__ import annotations

from heapq import heappop, heappush

from scheduling.simulate.sequence import Sequence, State


class Decoding:
    def __init__(self, block_size: int) -> None:
        self.members: dict[Sequence, None] = {}
        self.tick = 0
        self.context = 0  # tokens of KV over all members
        self._size = block_size
        self._phases = [0] * block_size
        self._ends: list[tuple[int, int, Sequence]] = []  # (last tick, serial, member), some stale

    def __len__(self) -> int:
        return len(self.members)

    def join(self, member: Sequence) -> None:
        member.state, member.batch, member.joined = State.DECODE, self, self.tick
        self.members[member] = None
        self.context += member.computed
        self._phases[(member.computed - self.tick) % self._size] += 1
        heappush(self._ends, (self._end(member), member.serial, member))

    def leave(self, member: Sequence) -> None:
        member.computed, member.output = member.context, member.generated
        member.batch = None
        del self.members[member]
        self.context -= member.computed
        self._phases[(member.computed - self.tick) % self._size] -= 1

    def need(self, ahead: int = 0) -> int:
        """New blocks for the tick that comes after `ahead` more."""
        return self._phases[-(self.tick + ahead) % self._size]

    def need_until(self, ticks: int) -> int:
        """New blocks for the next `ticks` ticks together."""
        cycles, rest = divmod(ticks, self._size)
        return cycles * len(self.members) + sum(self.need(ahead) for ahead in range(rest))

    def ticks_within(self, blocks: int) -> int:
        """How many ticks can be run with so many blocks; the members must not be none."""
        cycles, blocks = divmod(blocks, len(self.members))
        rest = 0
        while rest < self._size and self.need(rest) <= blocks:
            blocks -= self.need(rest)
            rest += 1
        return cycles * self._size + rest

    def ticks_to_end(self) -> int:
        """Ticks until the first member ends; the members must not be none."""
        while self._stale(self._ends[0]):
            heappop(self._ends)
        return self._ends[0][0] - self.tick

    def advance(self, ticks: int) -> list[Sequence]:
        """Run ticks, and take out those members that have all their tokens then."""
        self.tick += ticks
        self.context += ticks * len(self.members)
        ended = []
        while self._ends and (self._stale(self._ends[0]) or self._ends[0][0] <= self.tick):
            entry = heappop(self._ends)
            if not self._stale(entry):
                self.leave(entry[2])
                ended.append(entry[2])
        return ended

    def _end(self, member: Sequence) -> int:
        return member.joined + member.length - member.output

    def _stale(self, entry: tuple[int, int, Sequence]) -> bool:
        end, _, member = entry
        return member.batch is not self or self._end(member) != end
