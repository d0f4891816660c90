"""The formats of traces, told apart by the fields that they need.

Own: arrival (seconds), tenant, prompt_tokens, output_tokens; and as wished application, lane,
model, interaction, prefix, prefix_tokens. Rows of one `prefix` are taken for turns of one
conversation: their prompts begin alike as far as the shorter one goes, or `prefix_tokens` says.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime
from zlib import crc32

from scheduling.simulate.trace import PREFIX_TOKENS, Arrival, Fields

FRACTION = re.compile(r"(\.\d{6})\d+")  # Azure writes 7 digits, datetime reads 6
OWN_BLOCK = 64  # tokens per block of a prefix that only has a name
SERVED = {"stop", "length", "tool_calls", "content_filter"}


def own(fields: Fields) -> Arrival:
    prompt = fields.count("prompt_tokens", 1)
    return Arrival(
        at=fields.number("arrival"),
        tenant=fields.text("tenant"),
        prompt_tokens=prompt,
        output_tokens=fields.count("output_tokens", 1),
        application=fields.text("application"),
        lane=fields.text("lane"),
        model=fields.text("model"),
        interaction=fields.text("interaction"),
        blocks=_named(fields, prompt),
        block_tokens=OWN_BLOCK,
    )


def arena(fields: Fields) -> Arrival:
    """The trace of the VTC paper's section 5.3, as derived for shared/traces."""
    return Arrival(
        at=fields.number("t_s"),
        tenant=fields.text("client"),
        prompt_tokens=fields.count("prompt_tokens", 1),
        output_tokens=fields.count("output_tokens", 1),
    )


def azure(fields: Fields) -> Arrival:
    """AzureLLMInferenceTrace 2023: no tenants."""
    return Arrival(
        at=_moment(fields, "TIMESTAMP"),
        tenant="",
        prompt_tokens=fields.count("ContextTokens", 1),
        output_tokens=fields.count("GeneratedTokens", 1),
    )


def mooncake(fields: Fields) -> Arrival:
    """Mooncake, FAST 2025: milliseconds, hashes of 512-token blocks, no tenants."""
    blocks = fields.row["hash_ids"]
    if not isinstance(blocks, list) or not all(isinstance(block, int) for block in blocks):
        raise fields.wrong("hash_ids", "a list of whole numbers")
    return Arrival(
        at=fields.number("timestamp") / 1e3,
        tenant="",
        prompt_tokens=fields.count("input_length", 1),
        output_tokens=fields.count("output_length", 1),
        blocks=tuple(blocks),
        block_tokens=PREFIX_TOKENS,
    )


def usage(fields: Fields) -> Arrival | None:
    """`manage.py usage export`. What was refused or broke off has no lengths to replay."""
    prompt, output = fields.count("prompt_tokens"), fields.count("completion_tokens")
    if fields.text("finish_reason") not in SERVED or not prompt or not output:
        return None
    return Arrival(
        at=_moment(fields, "at"),
        tenant=fields.text("tenant"),
        prompt_tokens=prompt,
        output_tokens=output,
        application=fields.text("application"),
        lane=fields.text("lane"),
        model=fields.text("model"),
        interaction=fields.text("interaction"),
    )


Format = Callable[[Fields], Arrival | None]  # None: the row asked no engine for anything
FORMATS: tuple[tuple[frozenset[str], Format], ...] = (
    (frozenset({"arrival", "tenant", "prompt_tokens", "output_tokens"}), own),
    (frozenset({"at", "tenant", "finish_reason", "prompt_tokens", "completion_tokens"}), usage),
    (frozenset({"t_s", "client", "prompt_tokens", "output_tokens"}), arena),
    (frozenset({"TIMESTAMP", "ContextTokens", "GeneratedTokens"}), azure),
    (frozenset({"timestamp", "input_length", "output_length", "hash_ids"}), mooncake),
)


def _moment(fields: Fields, name: str) -> float:
    text = FRACTION.sub(r"\1", fields.text(name))
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise fields.wrong(name, "a time in ISO 8601") from None
    return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()


def _named(fields: Fields, prompt: int) -> tuple[int, ...]:
    name = fields.text("prefix")
    if not name:
        return ()
    given = fields.text("prefix_tokens")
    shared = min(prompt, fields.count("prefix_tokens", 1)) if given else prompt
    return tuple(crc32(f"{name}\0{k}".encode()) for k in range(-(-shared // OWN_BLOCK)))
