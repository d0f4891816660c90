"""The routes of the inference API, one row each: what is read of a body, what is put into it, how
an answer tells its usage, how an error sounds.

1. Whatever differs between routes stands here; the gateway's other modules ask the row.
2. A field of policy goes only where the engine's endpoint takes it (engines.md, 1.1 and 1.2):
   vLLM's header orders what generates, its pooling endpoints read `priority` of the body, and its
   form of Anthropic's body has neither priority nor salt.
3. A response that an engine kept could be asked for, or built on, by another tenant: what refers
   to one is refused, and none is stored.
4. Counting tokens loads no model: a call is charged a hundredth of what it counts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal

from gateway import errors
from gateway.dialects import Dialect
from gateway.errors import Voice
from gateway.wire import answers, conversation, pooling, prompt
from gateway.wire.events import MessagesMeter, ResponsesMeter
from gateway.wire.meter import Meter
from gateway.wire.prompt import Prompt
from gateway.wire.stream import StreamMeter
from gateway.wire.usage import Report, read_body

Kind = Literal[
    "chat", "completions", "responses", "messages", "embeddings", "rerank", "score", "tokenize"
]
Body = dict[str, Any]
Form = Literal["header", "body"]

ANY_FORM: frozenset[Form] = frozenset({"header", "body"})
IN_HEADER: frozenset[Form] = frozenset({"header"})
IN_BODY: frozenset[Form] = frozenset({"body"})
ALWAYS_DECIDED = ("model", "stream", "priority", "cache_salt")


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    kind: Kind
    path: str
    prompt: Callable[[Body], Prompt]
    prompt_field: str  # named where the prompt is too long
    texts: Callable[[Body], list[str]] | None = None  # None: its prompts are estimated only
    renders: bool = False  # its body is what `/tokenize` renders
    bounds: tuple[str, ...] = ()  # fields that bound output; policy's goes into the first
    least_bound: int = 1
    bound_is_due: bool = False  # the dialect demands one
    sequences: tuple[str, ...] = ()  # fields that say how many are generated for a prompt
    charged_share: int = 1  # of so many prompt tokens one is charged
    priority: frozenset[Form] = frozenset()  # what its endpoint reads, where the engine has it
    cache_salt: bool = False
    stream_options: bool = False
    meter: type[Meter] | None = None  # None: it does not stream
    report: Callable[[bytes, Dialect], Report]
    voice: Voice = errors.OPENAI
    unset: tuple[str, ...] = ()  # fields that would tie a call to another one; they are refused
    puts: Mapping[str, object] = field(default_factory=dict)  # in every body
    # Keys that policy reads or sets; where one stands twice the engine gets our reading.
    named: tuple[str, ...] = field(init=False)
    decided: tuple[bytes, ...] = field(init=False)  # as they stand in a body
    generates: bool = field(init=False)

    def __post_init__(self) -> None:
        options = ("stream_options",) if self.stream_options else ()
        names = (*ALWAYS_DECIDED, *self.bounds, *self.sequences, *self.unset, *self.puts, *options)
        object.__setattr__(self, "generates", bool(self.bounds))
        object.__setattr__(self, "named", names)
        object.__setattr__(self, "decided", tuple(b'"%s"' % name.encode() for name in names))

    def url(self, base: str) -> str:
        """At an engine; `base` is the policy's, with its /v1."""
        if self.path.startswith("/v1/"):
            return base + self.path[3:]
        return base.removesuffix("/v1") + self.path


_ROWS = (
    Route(
        kind="chat",
        path="/v1/chat/completions",
        prompt=prompt.of_chat,
        prompt_field="messages",
        texts=prompt.texts_of_chat,
        renders=True,
        # Of two that differ vLLM follows the newer, SGLang the older: no engine must get more than
        # was judged. Each takes 0 in one of them for "no limit".
        bounds=("max_tokens", "max_completion_tokens"),
        sequences=("n",),
        priority=ANY_FORM,
        cache_salt=True,
        stream_options=True,
        meter=StreamMeter,
        report=read_body,
    ),
    Route(
        kind="completions",
        path="/v1/completions",
        prompt=prompt.of_completion,
        prompt_field="prompt",
        texts=prompt.texts_of_completion,
        bounds=("max_tokens",),
        least_bound=0,
        sequences=("n", "best_of"),  # `best_of` are generated, the best `n` of them returned
        priority=ANY_FORM,
        cache_salt=True,
        stream_options=True,
        meter=StreamMeter,
        report=read_body,
    ),
    Route(
        kind="responses",
        path="/v1/responses",
        prompt=conversation.of_responses,
        prompt_field="input",
        texts=conversation.texts_of_responses,
        bounds=("max_output_tokens",),
        priority=ANY_FORM,
        cache_salt=True,
        meter=ResponsesMeter,
        report=answers.of_responses,
        voice=errors.RESPONSES,
        unset=("previous_response_id", "conversation", "background"),
        puts={"store": False},
    ),
    Route(
        kind="messages",
        path="/v1/messages",
        prompt=conversation.of_messages,
        prompt_field="messages",
        texts=conversation.texts_of_messages,
        bounds=("max_tokens",),
        bound_is_due=True,
        priority=IN_HEADER,
        meter=MessagesMeter,
        report=answers.of_messages,
        voice=errors.ANTHROPIC,
    ),
    Route(
        kind="embeddings",
        path="/v1/embeddings",
        prompt=pooling.of_embeddings,
        prompt_field="input",
        texts=pooling.texts_of_embeddings,
        priority=IN_BODY,
        cache_salt=True,
        report=answers.of_pooling,
    ),
    Route(
        kind="rerank",
        path="/v1/rerank",
        prompt=pooling.of_rerank,
        prompt_field="documents",
        priority=IN_BODY,
        cache_salt=True,
        report=answers.of_pooling,
    ),
    Route(
        kind="score",
        path="/v1/score",
        prompt=pooling.of_score,
        prompt_field="text_2",
        priority=IN_BODY,
        cache_salt=True,
        report=answers.of_pooling,
    ),
    Route(
        kind="tokenize",
        path="/tokenize",
        prompt=pooling.of_tokenize,
        prompt_field="prompt",
        charged_share=answers.TOKENS_A_CHARGE,
        report=answers.of_tokenize,
    ),
)
ROUTES: Mapping[Kind, Route] = MappingProxyType({row.kind: row for row in _ROWS})
