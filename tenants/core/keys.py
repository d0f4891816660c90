"""The form of an API key: `fl_<id>_<secret>`.

1. The id is public: it names the key in pages, logs and records, and stays through rotations.
2. The secret has at least 256 bits, so a plain SHA-256 digest cannot be searched; the digest of
   the whole text is all that is stored, and what the gateway looks up.
3. No randomness here: whoever makes a key brings it.
"""

from __future__ import annotations

import re
from hashlib import sha256

ID_ALPHABET = "abcdefghijkmnpqrstuvwxyz23456789"  # no l, o, 0, 1: ids are read aloud
ID_LENGTH = 12
BASE62 = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
SECRET_LENGTH = 43  # 62**43 > 2**256
KEY = re.compile(rf"fl_([{ID_ALPHABET}]{{{ID_LENGTH}}})_([{BASE62}]{{{SECRET_LENGTH}}})")


def key_text(public_id: str, secret: str) -> str:
    """Raises ValueError where the two do not make a well-formed key."""
    text = f"fl_{public_id}_{secret}"
    if not KEY.fullmatch(text):
        raise ValueError("not the id and secret of a key")
    return text


def digest(text: str | bytes) -> bytes:
    """What a snapshot's `keys` is looked up by; takes any text, also one that is no key."""
    return sha256(text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text).digest()


def id_in(text: str) -> str:
    """The id, as such or as pages and logs show it: `fl_<id>_…`."""
    return text.split("_")[1] if text.startswith("fl_") else text


def masked(public_id: str) -> str:
    return f"fl_{public_id}_…"


def mask(text: str) -> str:
    """The same for a whole key as somebody sent it; anything else shows nothing at all."""
    found = KEY.fullmatch(text)
    return masked(found.group(1)) if found else "…"
