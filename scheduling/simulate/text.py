"""Text as tokens, without a vocabulary: a token is four bytes of UTF-8, the last one maybe fewer.

1. Counting never looks at the text, only at its length.
2. A token's id holds its bytes (with a leading 1, so that short tokens differ too): `decode` turns
   what `encode` gave back into the same text.
3. Generated text is made of three-letter words, so that a word with its space is one token, and
   text counted again has as many tokens as were generated.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b

BYTES_PER_TOKEN = 4
_WORDS = (
    "air ant arc art ash bay bed bee big box bud cap car cat cup day dew dog ear egg elk fan "
    "far fig fir fog fox gem hat hay ice ink ivy jar key lap log map mud new nut oak oar oat "
    "one owl pea pen pie pin red row rye sea sky sun tea ten tin top toy two van way"
)
WORDS = _WORDS.split()


def count(data: bytes) -> int:
    return -(-len(data) // BYTES_PER_TOKEN)


def encode(data: bytes) -> list[int]:
    return [int.from_bytes(b"\x01" + piece) for piece in _pieces(data)]


def decode(tokens: Iterable[int]) -> bytes:
    """Raises OverflowError for an id that is no token's."""
    return b"".join(token.to_bytes(BYTES_PER_TOKEN + 1).lstrip(b"\0")[1:] for token in tokens)


def _pieces(data: bytes) -> list[bytes]:
    return [data[i : i + BYTES_PER_TOKEN] for i in range(0, len(data), BYTES_PER_TOKEN)]


def block_hashes(data: bytes, salt: str, block_size: int) -> tuple[int, ...]:
    """Chained: each hash stands for its block, all blocks before it, and the salt."""
    width = block_size * BYTES_PER_TOKEN
    hashes, last = [], hash(salt)
    for start in range(0, len(data) - width + 1, width):
        last = hash((last, data[start : start + width]))
        hashes.append(last)
    return tuple(hashes)


def digest(*parts: bytes | str | int | None) -> int:
    """64 bits that depend on nothing but the parts."""
    hasher = blake2b(digest_size=8)
    for part in parts:
        data = part if isinstance(part, bytes) else str(part).encode()
        hasher.update(b"%d:" % len(data))
        hasher.update(data)
    return int.from_bytes(hasher.digest())


class Prose:
    """Words drawn by a seed: `piece(n)` is the n-th token."""

    def __init__(self, seed: int) -> None:
        self._start = seed & 63
        self._stride = (seed >> 6 & 63) | 1  # odd: visits all 64 words before it comes round

    def piece(self, position: int) -> str:
        word = WORDS[(self._start + position * self._stride + (position >> 6) * 5) & 63]
        return word if position == 0 else " " + word

    def text(self, length: int) -> str:
        return "".join(map(self.piece, range(length)))
