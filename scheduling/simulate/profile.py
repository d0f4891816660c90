"""What a simulated engine can hold and how long its steps take, read from a YAML or JSON file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
import yaml

SHIPPED = Path(__file__).parent / "profiles"

Count = Annotated[int, msgspec.Meta(ge=1, le=2**40)]
Cost = Annotated[float, msgspec.Meta(ge=0, le=1e6)]  # the upper bound refuses .inf


class ProfileError(ValueError):
    """One line that names the profile, the field, and what it takes."""


class StepTime(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One step lasts base + prefill·(prompt tokens) + sequence·(sequences) + kv·(tokens of KV)."""

    base_ms: Annotated[float, msgspec.Meta(gt=0, le=1e6)]
    prefill_token_us: Cost = 0.0
    sequence_us: Cost = 0.0
    kv_token_ns: Cost = 0.0

    def seconds(self, steps: int, prefill_tokens: int, sequences: int, kv_tokens: int) -> float:
        """How long `steps` steps of the same sequences last; token counts are over all steps."""
        return (
            steps * (self.base_ms / 1e3 + sequences * (self.sequence_us / 1e6))
            + prefill_tokens * (self.prefill_token_us / 1e6)
            + kv_tokens * (self.kv_token_ns / 1e9)
        )


class OutputLength(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Log-normal: what a request generates when nothing in it says how much."""

    median_tokens: Count = 120
    spread: Annotated[float, msgspec.Meta(ge=0, le=3)] = 0.6  # standard deviation of the logarithm


class Profile(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    name: str
    description: str = ""
    max_num_seqs: Count
    max_num_batched_tokens: Count
    num_gpu_blocks: Count
    block_size: Annotated[int, msgspec.Meta(ge=1, le=1024)] = 16
    max_model_len: Annotated[int, msgspec.Meta(ge=2, le=2**31)]
    image_tokens: Annotated[int, msgspec.Meta(ge=1, le=100_000)] = 256
    step: StepTime
    output: OutputLength = OutputLength()

    def __post_init__(self) -> None:
        if self.max_num_batched_tokens < self.max_num_seqs:
            raise ValueError(
                f"max_num_batched_tokens is {self.max_num_batched_tokens}; it takes at least "
                f"max_num_seqs ({self.max_num_seqs}), one token for each running sequence"
            )
        if self.kv_tokens < self.max_model_len:
            raise ValueError(
                f"num_gpu_blocks is {self.num_gpu_blocks}, room for {self.kv_tokens} tokens; "
                f"it takes room for one request of max_model_len ({self.max_model_len})"
            )

    @property
    def kv_tokens(self) -> int:
        return self.num_gpu_blocks * self.block_size


def load(name_or_path: str) -> Profile:
    """A shipped profile by its name, or any file.

    Raises:
        ProfileError: no such profile, not YAML, or a field is wrong.
    """
    path = find(name_or_path)
    try:
        return msgspec.convert(yaml.safe_load(path.read_text("utf-8")), Profile)
    except (OSError, UnicodeDecodeError, yaml.YAMLError, msgspec.ValidationError) as error:
        reason = " ".join(str(error).split())
        raise ProfileError(f"engine profile {name_or_path}: {reason}") from error


def find(name_or_path: str) -> Path:
    for path in (SHIPPED / f"{name_or_path}.yaml", Path(name_or_path)):
        if path.is_file():
            return path
    raise ProfileError(
        f"engine profile {name_or_path!r} is neither a file nor one of: {', '.join(shipped())}"
    )


def shipped() -> list[str]:
    return sorted(path.stem for path in SHIPPED.glob("*.yaml"))
