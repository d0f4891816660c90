"""From a checked request to a call: its prompts, its answers, and what the engine runs for it."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Literal
from uuid import uuid4

from scheduling.simulate import text
from scheduling.simulate.profile import Profile
from scheduling.simulate.sequence import Request
from scheduling.simulate.server import prompt as prompts
from scheduling.simulate.server.answers import (
    Answer,
    Text,
    drawn_length,
    fixed,
    json_to_say,
    prose,
    tool_call,
    tool_to_call,
)
from scheduling.simulate.server.call import Call, Part
from scheduling.simulate.server.errors import (
    bad_request,
    output_too_long,
    prompt_too_long,
    unknown_model,
)
from scheduling.simulate.server.faults import Script
from scheduling.simulate.server.prompt import Prompt
from scheduling.simulate.server.wire import (
    ChatRequest,
    Common,
    CompletionRequest,
    Tool,
    check_common,
)

COMPLETION_MAX_TOKENS = 16  # vLLM's default on that route
MAX_SEQUENCES = 1024  # choices times prompts of one call


@dataclass(frozen=True, slots=True)
class Arrival:
    """What of a call lies outside its body."""

    at: float  # seconds, model time
    priority: int
    request_id: str | None
    script: Script


@dataclass(frozen=True, slots=True)
class Composer:
    profile: Profile
    models: tuple[str, ...]
    seed: int

    def chat(self, asked: ChatRequest, arrival: Arrival) -> Call:
        self.check(asked)
        if not asked.messages:
            raise bad_request("messages must not be empty.", "messages")
        form = tool_to_call(asked) or json_to_say(asked)
        prompt = prompts.of_chat(
            asked.messages, asked.tools, asked.add_generation_prompt, self.profile.image_tokens
        )
        wanted = asked.max_completion_tokens or asked.max_tokens
        return self._call("chatcmpl", asked, arrival, [prompt], wanted, form)

    def completion(self, asked: CompletionRequest, arrival: Arrival) -> Call:
        self.check(asked)
        each = prompts.each(asked.prompt)
        if not each or not all(prompt.data for prompt in each):
            raise bad_request("The prompt must not be empty.", "prompt")
        wanted = asked.max_tokens or COMPLETION_MAX_TOKENS
        return self._call("cmpl", asked, arrival, each, wanted, None)

    def pooled(self, asked: Common, each: list[Prompt], arrival: Arrival) -> Call:
        """A call whose prompts are read and answered without generating anything."""
        self.check(asked)
        if not each or not all(prompt.data for prompt in each):
            raise bad_request("There is no text to read.", "input")
        call = self._call("pool", asked, arrival, each, 1, None)
        call.generates = False
        return call

    def check(self, asked: Common) -> None:
        self.check_model(asked.model)
        check_common(asked)

    def check_model(self, name: str | None) -> None:
        if name is not None and name not in self.models:
            raise unknown_model(name)

    def _call(
        self,
        prefix: str,
        asked: Common,
        arrival: Arrival,
        each: list[Prompt],
        max_tokens: int | None,
        form: Tool | str | None,  # what is to be called, or said; None: prose
    ) -> Call:
        choices = asked.n or 1
        if len(each) * choices > MAX_SEQUENCES:
            raise bad_request(f"More than {MAX_SEQUENCES} sequences in one request.", "n")
        lengths = [self._prompt_tokens(prompt, max_tokens, arrival.script) for prompt in each]
        call = Call(
            id=f"{prefix}-{asked.request_id or arrival.request_id or uuid4().hex}",
            created=int(time.time()),
            model=asked.model or self.models[0],
            streams=bool(asked.stream),
            script=arrival.script,
            answers=[
                self._answer(asked, prompt, i, length, max_tokens, form, arrival.script)
                for prompt, length in zip(each, lengths, strict=True)
                for i in range(choices)
            ],
        )
        unique = uuid4().hex  # the caller's id may come twice
        for number, (prompt, length) in enumerate(zip(each, lengths, strict=True)):
            first = number * choices
            request = Request(
                id=f"{unique}/{number}",
                prompt_tokens=length,
                output_tokens=tuple(a.length for a in call.answers[first : first + choices]),
                arrival=arrival.at,
                priority=arrival.priority,
                blocks=self._blocks(prompt, length, asked.cache_salt),
            )
            call.parts.append(Part(call, request, first))
        return call

    def _prompt_tokens(self, prompt: Prompt, max_tokens: int | None, script: Script) -> int:
        if script.prompt_tokens is not None:
            return max(1, script.prompt_tokens)
        most = self.profile.max_model_len
        if prompt.tokens >= most:
            raise prompt_too_long(prompt.tokens, most)
        if max_tokens is not None and prompt.tokens + max_tokens > most:
            raise output_too_long(max_tokens, prompt.tokens, most)
        return prompt.tokens

    def _blocks(self, prompt: Prompt, length: int, salt: str | None) -> tuple[int, ...]:
        hashes = text.block_hashes(prompt.data, salt or "", self.profile.block_size)
        return hashes[: length // self.profile.block_size]

    def _answer(
        self,
        asked: Common,
        prompt: Prompt,
        choice: int,
        length: int,
        max_tokens: int | None,
        form: Tool | str | None,
        script: Script,
    ) -> Answer:
        seed = text.digest(self.seed, prompt.data, asked.seed, choice)
        limit = max_tokens or max(1, self.profile.max_model_len - length)
        if script.output_tokens is not None:
            scripted = prose(seed, script.output_tokens, script.output_tokens)
            return Text(scripted.prose, scripted.length, _scripted_finish(scripted.length, limit))
        if isinstance(form, str):
            return fixed(form, limit)
        if form is not None:
            return tool_call(seed, form, limit)
        if asked.ignore_eos:
            return prose(seed, limit + 1, limit)
        drawn = max(drawn_length(seed, self.profile.output), asked.min_tokens or 0)
        return prose(seed, drawn, limit)


def _scripted_finish(length: int, limit: int) -> Literal["stop", "length"]:
    return "length" if length >= limit else "stop"
