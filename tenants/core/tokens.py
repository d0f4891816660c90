"""The form of a token for the admin API: `flt_<id>_<secret>`. As with keys, the id is public and
only the digest of the whole text is stored."""

from __future__ import annotations

PREFIX = "flt"


def token_text(public_id: str, secret: str) -> str:
    return f"{PREFIX}_{public_id}_{secret}"


def masked(public_id: str) -> str:
    return f"{PREFIX}_{public_id}_…"
