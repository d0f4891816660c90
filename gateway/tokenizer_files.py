"""A model's `tokenizer.json` through the `tokenizers` library, an extra of this package."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

LARGEST_BYTES = 256 * 2**20  # the largest in use have some 30 MB

CountTexts = Callable[[list[str]], int]


class Unreadable(Exception):
    """There is no counting with this file; the message says why."""


def load(path: str) -> CountTexts:
    """What counts the tokens of texts as the model of this file does, without special tokens.

    Raises:
        Unreadable: the library is missing, or the file is no tokenizer.
    """
    try:
        library: Any = import_module("tokenizers")
    except ImportError:
        raise Unreadable(
            "the tokenizers library is missing; pip install fairlane[tokenizers]"
        ) from None
    if Path(path).exists() and not _is_fit(Path(path)):
        raise Unreadable(f"{path} is no file of {LARGEST_BYTES // 2**20} MiB at most")
    try:
        tokenizer = library.Tokenizer.from_file(path)
    except Exception as error:  # the library raises Exception itself
        raise Unreadable(f"{path} is no readable tokenizer.json: {error}") from None
    tokenizer.no_truncation()
    tokenizer.no_padding()

    def count(texts: list[str]) -> int:
        found = tokenizer.encode_batch_fast(texts, add_special_tokens=False)
        return sum(map(len, found))

    return count


def _is_fit(path: Path) -> bool:
    """A device or a pipe would be read without end."""
    return path.is_file() and path.stat().st_size <= LARGEST_BYTES
