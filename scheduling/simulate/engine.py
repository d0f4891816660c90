"""A model of one inference engine's continuous batching. No clock and no I/O: time comes in.

It follows vLLM's scheduler (`v1/core/sched/scheduler.py`, 0.32) in what a gateway can notice:

1. A step takes first one token for each decoding sequence, then prompt chunks up to
   `max_num_batched_tokens` in all, then admits from the queue up to `max_num_seqs`.
2. The queue's order is (priority, arrival) under `priority`, arrival alone under `fcfs`. Admission
   never displaces a running sequence.
3. Only a lack of KV blocks preempts. The victim is the running sequence with the greatest
   (priority, arrival); it goes back to its place in the queue, keeps its output, and computes its
   KV again. A step that preempted admits nobody.
4. A sequence is in one state at a time, ends with exactly its number of tokens however often it
   was preempted, and holds no block once it has ended or was aborted.
5. KV blocks are conserved (kv.py).
6. A stretch of n steps equals n single steps.

Left out: vLLM caches generated blocks too (here only the prompt's can be found again), and lets
sequences behind a self-preempting one sit out that step.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from typing import Literal

from scheduling.simulate.decoding import Decoding
from scheduling.simulate.kv import KvCache
from scheduling.simulate.profile import Profile
from scheduling.simulate.sequence import Key, Request, Sequence, State

Policy = Literal["fcfs", "priority"]
UNTIL_CHANGE = 2**62


@dataclass(slots=True)
class Step:
    """What runs now: one step, or a stretch of equal ones. Times in seconds."""

    start: float
    end: float
    steps: int
    chunks: list[tuple[Sequence, int]]  # prompt tokens that this step computes
    preempted: list[Sequence]


@dataclass(frozen=True, slots=True)
class Outcome:
    """After a step, every sequence in `Engine.decoding` and in `finished` has one token more."""

    at: float
    steps: int
    started: list[Sequence]  # computed their prompt in this step
    finished: list[Sequence]


@dataclass(slots=True)
class Totals:
    """Monotonic counts, in tokens where nothing else is said."""

    prompt: int = 0
    prompt_cached: int = 0
    generated: int = 0
    prefix_queries: int = 0
    prefix_hits: int = 0
    preemptions: int = 0  # sequences
    steps: int = 0


class Engine:
    """Call `add`/`abort` at any time, `begin` when idle, and `end` when the step's time has come.

    With `begin(now, UNTIL_CHANGE)` a step is a stretch that lasts until the batch changes. Whoever
    then wants to add or abort first calls `cut(now)`, which shortens the stretch to the step that
    is being computed at that time.
    """

    def __init__(self, profile: Profile, policy: Policy = "priority") -> None:
        self.profile = profile
        self.policy = policy
        self.kv = KvCache(profile.num_gpu_blocks)
        self.totals = Totals()
        self._size = profile.block_size
        self._queue: list[tuple[Key, Sequence]] = []
        self._prefills: dict[Sequence, None] = {}
        self._decoding = Decoding(profile.block_size)
        self._requests: dict[str, list[Sequence]] = {}
        self._serial = 0
        self._step: Step | None = None
        self._paid = False  # the blocks for the tick that runs are taken

    # --- what it holds ----------------------------------------------------------------------

    @property
    def running(self) -> int:
        return len(self._prefills) + len(self._decoding)

    @property
    def waiting(self) -> int:
        return len(self._queue)

    @property
    def decoding(self) -> dict[Sequence, None]:
        return self._decoding.members

    @property
    def tick(self) -> int:
        """Tokens that each sequence would have that decoded from the start; before the stretch."""
        return self._decoding.tick

    @property
    def step(self) -> Step | None:
        return self._step

    def queue(self) -> list[Sequence]:
        """Who waits, next first."""
        return [sequence for _, sequence in sorted(self._queue, key=lambda item: item[0])]

    def sequences(self, request_id: str) -> list[Sequence]:
        """Those of a request that have not ended; [] when there is none."""
        return self._requests.get(request_id, [])

    # --- what comes from outside ------------------------------------------------------------

    def add(self, request: Request) -> list[Sequence]:
        """Queue a request, one sequence per choice.

        Raises:
            ValueError: its id is here already, or it is longer than the whole KV cache.
        """
        self._check(request)
        sequences = [self._sequence(request, i) for i in range(len(request.output_tokens))]
        for sequence in sequences:
            heappush(self._queue, (sequence.key, sequence))
        self._requests[request.id] = list(sequences)
        return sequences

    def abort(self, request_id: str, now: float) -> list[Sequence]:
        """Drop what has not ended of a request, whatever it is doing; its blocks are free."""
        self._one_step_only()
        sequences = self._requests.pop(request_id, [])
        for sequence in sequences:
            if sequence.state is State.WAITING:
                self._queue.remove((sequence.key, sequence))
                heapify(self._queue)
            else:
                self._remove(sequence)
            sequence.state, sequence.ended_at = State.ABORTED, now
        return sequences

    def _check(self, request: Request) -> None:
        self._one_step_only()
        if request.id in self._requests:
            raise ValueError(f"request {request.id!r} is here already")
        longest = request.prompt_tokens + max(request.output_tokens, default=0)
        if request.prompt_tokens < 1 or not request.output_tokens:
            raise ValueError(f"request {request.id!r} lacks a prompt or an output")
        if longest > self.profile.kv_tokens:
            raise ValueError(
                f"request {request.id!r} needs {longest} tokens of KV cache; "
                f"this engine has {self.profile.kv_tokens}"
            )

    def _one_step_only(self) -> None:
        if self._step is not None and self._step.steps > 1:
            raise RuntimeError("a stretch of steps is under way: cut it first")

    def _sequence(self, request: Request, index: int) -> Sequence:
        self._serial += 1
        by_priority = self.policy == "priority"
        key = (request.priority, request.arrival, self._serial) if by_priority else None
        return Sequence(
            request=request,
            index=index,
            serial=self._serial,
            key=key or (0, 0.0, self._serial),
            length=request.output_tokens[index],
        )

    # --- one step ---------------------------------------------------------------------------

    def begin(self, now: float, at_most: int = 1) -> Step | None:
        """Decide the next step and take its blocks; None when there is nothing to do."""
        if self._step is not None:
            raise RuntimeError("the step that was begun has not ended")
        if not self._queue and not self.running:
            return None
        plan = _Plan(budget=self.profile.max_num_batched_tokens)
        self._plan_decoding(plan)
        self._plan_prefills(plan)
        if not plan.preempted:
            self._admit(plan, now)
        assert plan.chunks or self._decoding, "somebody always fits"
        steps = self._unchanged(at_most) if not (plan.chunks or plan.preempted) else 1
        end = now + self._duration(steps, plan.chunks)
        self._step = Step(now, end, steps, plan.chunks, plan.preempted)
        return self._step

    def end(self) -> Outcome:
        """Apply the step that was begun."""
        step = self._step
        if step is None:
            raise RuntimeError("no step was begun")
        finished = self._advance(step.steps)
        self._step, self._paid = None, False
        started = [s for s, count in step.chunks if self._prefilled(s, count, step.end)]
        finished += [s for s in started if s.generated >= s.length]
        for sequence in finished:
            self._finish(sequence, step.end)
        return Outcome(step.end, step.steps, started, finished)

    def cut(self, now: float) -> Step | None:
        """Shorten a stretch to the step that is computed at `now`; returns what runs then."""
        step = self._step
        if step is None or step.steps == 1:
            return step
        whole = self._whole_steps(now - step.start, step.steps - 1)
        if whole:
            step.start += self._duration(whole, [])
            self._advance(whole)
            self._pay()
        step.steps, step.end = 1, step.start + self._duration(1, [])
        return step

    def _plan_decoding(self, plan: _Plan) -> None:
        while self.kv.available < self._decoding.need():
            self._preempt(plan)
        self._pay()
        plan.budget -= len(self._decoding)

    def _pay(self) -> None:
        self.kv.take(self._decoding.need())
        self._paid = True

    def _plan_prefills(self, plan: _Plan) -> None:
        """Go on with prompts that did not fit into the step before."""
        for sequence in list(self._prefills):
            if sequence not in self._prefills or plan.budget <= 0:
                continue
            count = min(plan.budget, sequence.prefill_target - sequence.computed)
            need = self._blocks(sequence.computed + count) - sequence.blocks
            while self.kv.available < need and sequence in self._prefills:
                self._preempt(plan)
            if sequence in self._prefills:
                self._schedule(sequence, count, plan)

    def _admit(self, plan: _Plan, now: float) -> None:
        while self._queue and plan.budget > 0 and self.running < self.profile.max_num_seqs:
            sequence = self._queue[0][1]
            hits = self._hits(sequence)
            known = hits * self._size
            count = min(plan.budget, sequence.prefill_target - known)
            found = sequence.request.blocks[:hits]
            if self._blocks(known + count) - hits > self.kv.room_beside(found):
                return
            heappop(self._queue)
            self._enter(sequence, hits, now)
            self._schedule(sequence, count, plan)

    def _hits(self, sequence: Sequence) -> int:
        """Cached leading blocks; at least one token is left to compute, or nothing comes out."""
        most = (sequence.prefill_target - 1) // self._size
        return self.kv.match(sequence.request.blocks, most)

    def _enter(self, sequence: Sequence, hits: int, now: float) -> None:
        known = hits * self._size
        self.kv.hold(sequence.request.blocks[:hits])
        sequence.state = State.PREFILL
        sequence.computed, sequence.blocks, sequence.shared = known, hits, hits
        if sequence.scheduled_at is None:
            sequence.scheduled_at = now
            sequence.cached_tokens = known
            self.totals.prefix_queries += sequence.prefill_target
            self.totals.prefix_hits += known
        self._prefills[sequence] = None

    def _schedule(self, sequence: Sequence, count: int, plan: _Plan) -> None:
        covered = sequence.computed + count
        blocks = self._blocks(covered)
        self.kv.take(blocks - sequence.blocks)
        # Published when scheduled, as vLLM does: choices of one request share within one step.
        full = min(covered, sequence.request.prompt_tokens) // self._size
        fresh = sequence.request.blocks[sequence.shared : full]
        sequence.shared += self.kv.publish(fresh)
        sequence.blocks = blocks
        plan.chunks.append((sequence, count))
        plan.budget -= count

    def _preempt(self, plan: _Plan) -> None:
        """Invariant 3."""
        victim = max((*self._decoding.members, *self._prefills), key=lambda s: s.key)
        if victim.state is State.DECODE:
            plan.budget += self._paid
        self._remove(victim)
        plan.drop(victim)
        victim.state = State.WAITING
        victim.preemptions += 1
        self.totals.preemptions += 1
        heappush(self._queue, (victim.key, victim))

    def _remove(self, sequence: Sequence) -> None:
        """Take a running sequence out of the batch, with its blocks."""
        held = sequence.blocks
        if sequence.state is State.DECODE:
            held = self._blocks(sequence.context + self._paid)
            self._decoding.leave(sequence)
        else:
            del self._prefills[sequence]
        self._free(sequence, held)

    def _free(self, sequence: Sequence, held: int) -> None:
        self.kv.release(sequence.request.blocks[: sequence.shared], held - sequence.shared)
        sequence.computed = sequence.blocks = sequence.shared = 0

    def _advance(self, ticks: int) -> list[Sequence]:
        """Run ticks of the decoding batch; the first one's blocks are taken already."""
        self.kv.take(self._decoding.need_until(ticks) - self._decoding.need())
        self.totals.generated += ticks * len(self._decoding)
        self.totals.steps += ticks
        self._paid = False
        return self._decoding.advance(ticks)

    def _prefilled(self, sequence: Sequence, count: int, at: float) -> bool:
        """Count a chunk; whether that was the prompt's last one."""
        if sequence not in self._prefills:
            return False  # aborted meanwhile
        sequence.computed += count
        if sequence.computed < sequence.prefill_target:
            return False
        del self._prefills[sequence]
        if sequence.first_token_at is None:
            sequence.first_token_at = at
            self.totals.prompt += sequence.request.prompt_tokens
            self.totals.prompt_cached += sequence.cached_tokens
        if sequence.length:
            sequence.output += 1
            self.totals.generated += 1
        if sequence.output < sequence.length:
            self._decoding.join(sequence)
        return True

    def _finish(self, sequence: Sequence, at: float) -> None:
        self._free(sequence, self._blocks(sequence.computed))
        sequence.state, sequence.ended_at = State.FINISHED, at
        rest = self._requests[sequence.request.id]
        rest.remove(sequence)
        if not rest:
            del self._requests[sequence.request.id]

    # --- how long it takes ------------------------------------------------------------------

    def _blocks(self, tokens: int) -> int:
        return -(-tokens // self._size)

    def _duration(self, steps: int, chunks: list[tuple[Sequence, int]]) -> float:
        """Seconds. Each step reads the KV that is there at its end: so many tokens more than the
        step before as there are decoding sequences."""
        members = len(self._decoding)
        kv = steps * self._decoding.context + members * (steps * (steps + 1) // 2)
        kv += sum(sequence.computed + count for sequence, count in chunks)
        prefill = sum(count for _, count in chunks)
        return self.profile.step.seconds(steps, prefill, members + len(chunks), kv)

    def _unchanged(self, at_most: int) -> int:
        """How many steps this batch lasts; who could not be admitted now cannot be until then."""
        if at_most == 1:
            return 1
        spare = self.kv.available + self._decoding.need()  # this tick's are taken already
        return min(at_most, self._decoding.ticks_to_end(), self._decoding.ticks_within(spare))

    def _whole_steps(self, elapsed: float, at_most: int) -> int:
        """How many steps of the stretch have ended before `elapsed` seconds: bisected, because
        the closed form's square root is off by one at the edges."""
        low, high = 0, at_most
        while low < high:
            middle = (low + high + 1) // 2
            if self._duration(middle, []) < elapsed:
                low = middle
            else:
                high = middle - 1
        return low


@dataclass(slots=True)
class _Plan:
    budget: int
    chunks: list[tuple[Sequence, int]] = field(default_factory=list)
    preempted: list[Sequence] = field(default_factory=list)

    def drop(self, victim: Sequence) -> None:
        """A victim gives back the prompt tokens that this very step had planned for it."""
        self.preempted.append(victim)
        self.budget += sum(count for sequence, count in self.chunks if sequence is victim)
        self.chunks = [chunk for chunk in self.chunks if chunk[0] is not victim]
