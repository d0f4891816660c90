"""KV blocks and the prefix cache, after vLLM's block pool.

1. Every block is in one place: blank + idle + held = total. Idle blocks are cached but unused;
   held ones are private to a sequence or shared under their hash.
2. A hash names at most one block. A second block of the same content stays private.
3. Idle blocks are evicted least recently used first, and of one sequence its tail first, so that
   what goes last is what most prompts share.

Blocks have no numbers here: only hashes and counts decide anything.
"""

from __future__ import annotations

from collections.abc import Sequence


class KvCache:
    def __init__(self, total: int) -> None:
        self.total = total
        self._blank = total
        self._private = 0
        self._shared: dict[int, int] = {}  # hash -> sequences that hold it
        self._idle: dict[int, None] = {}  # least recently used first

    @property
    def available(self) -> int:
        return self._blank + len(self._idle)

    @property
    def held(self) -> int:
        return self._private + len(self._shared)

    @property
    def usage(self) -> float:
        """0 to 1. Cached blocks that nobody uses count as free, as in vLLM's gauge."""
        return self.held / self.total

    def match(self, blocks: Sequence[int], at_most: int) -> int:
        """How many leading blocks are cached."""
        hits = 0
        for block in blocks[:at_most]:
            if block not in self._shared and block not in self._idle:
                break
            hits += 1
        return hits

    def room_beside(self, blocks: Sequence[int]) -> int:
        """Blocks available once these cached ones are held."""
        return self.available - sum(block in self._idle for block in blocks)

    def hold(self, blocks: Sequence[int]) -> None:
        """Hold cached blocks."""
        for block in blocks:
            self._idle.pop(block, None)
            self._shared[block] = self._shared.get(block, 0) + 1

    def take(self, count: int) -> None:
        """Hold `count` private blocks; the caller has checked `available`."""
        while self._blank < count:
            del self._idle[next(iter(self._idle))]
            self._blank += 1
        self._blank -= count
        self._private += count

    def publish(self, blocks: Sequence[int]) -> int:
        """Turn private blocks into shared ones; stops at the first hash that another block has,
        because what follows is found only through that block. Returns how many were turned."""
        for turned, block in enumerate(blocks):
            if block in self._shared or block in self._idle:
                return turned
            self._shared[block] = 1
            self._private -= 1
        return len(blocks)

    def release(self, blocks: Sequence[int], private: int) -> None:
        self._private -= private
        self._blank += private
        for block in reversed(blocks):
            left = self._shared[block] - 1
            if left:
                self._shared[block] = left
            else:
                del self._shared[block]
                self._idle[block] = None
