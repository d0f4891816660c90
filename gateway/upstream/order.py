"""Whether an engine serves waiting requests by their priority: seen from how streams begin.

vLLM takes a priority under `--scheduling-policy fcfs` too and ignores it without a word
(engines.md, fact 2), so nothing that it answers tells; only the order in which it begins does.

1. Of two streams at one endpoint, the more urgent one asked later: begun first, it overtook, which
   only an engine does that looks at priorities.
2. The less urgent one, when it begins though the other has waited for `PATIENCE_S`, was let in
   before it: under a priority policy it could not have been, unless its own prompt takes so long to
   compute that it was let in before the other came; long prompts say nothing.
3. An engine is said to ignore priorities after `ENOUGH` such beginnings, if overtaking was rare.
   Where the queue stands in the gateway, nothing waits in the engine and nothing can be said.
"""

from __future__ import annotations

from dataclasses import dataclass, field

PATIENCE_S = 1.0
ENOUGH = 8
RARE = 4  # overtakings are rare where they are fewer than a fourth
MOST = 256  # beginnings remembered of each kind: then both count half
LONG_PROMPT = 2048  # tokens
MOST_PENDING = 128

Key = tuple[str, str]  # pool, endpoint URL


@dataclass(slots=True, eq=False)
class Pending:
    """A stream that was asked for and has not begun. `priority`: the lane's, lower first. It knows
    nothing of its request, which would be kept, with its policy, until another stream begins."""

    priority: int
    asked_at: float
    prompt_tokens: int
    is_over: bool = False  # it will not begin any more


@dataclass(slots=True)
class _Seen:
    pending: dict[Pending, None] = field(default_factory=dict)
    overtook: int = 0
    passed_over: int = 0


class OrderWatch:
    def __init__(self) -> None:
        self._seen: dict[Key, _Seen] = {}

    def ask(self, key: Key, stream: Pending) -> None:
        seen = self._seen.setdefault(key, _Seen())
        if len(seen.pending) >= MOST_PENDING:
            seen.pending = {each: None for each in seen.pending if not each.is_over}
        if len(seen.pending) < MOST_PENDING:
            seen.pending[stream] = None

    def begin(self, key: Key, stream: Pending, now: float) -> None:
        seen = self._seen.setdefault(key, _Seen())
        seen.pending.pop(stream, None)
        others = seen.pending = {each: None for each in seen.pending if not each.is_over}
        if any(o.priority > stream.priority and o.asked_at < stream.asked_at for o in others):
            seen.overtook += 1
        elif stream.prompt_tokens <= LONG_PROMPT and any(
            o.priority < stream.priority and now - o.asked_at >= PATIENCE_S for o in others
        ):
            seen.passed_over += 1
        if seen.overtook + seen.passed_over > MOST:
            seen.overtook //= 2
            seen.passed_over //= 2

    def ignored(self, key: Key) -> bool:
        seen = self._seen.get(key)
        if seen is None or seen.passed_over < ENOUGH:
            return False
        return seen.overtook * RARE < seen.passed_over

    def forget(self, key: Key) -> None:
        """It may be another engine now, or one that was started in another way."""
        self._seen.pop(key, None)
