"""The form of a key, and what of it may be shown."""

from hashlib import sha256

import pytest

from tenants.core import keys

ID, SECRET = "abcdefghijkm", "A" * 43
TEXT = f"fl_{ID}_{SECRET}"


def test_a_key_is_its_id_and_its_secret() -> None:
    assert keys.key_text(ID, SECRET) == TEXT


@pytest.mark.parametrize(
    ("public_id", "secret"),
    [("", SECRET), (ID[:-1], SECRET), ("ABCDEFGHIJKM", SECRET), (ID, SECRET[:-1]), (ID, "-" * 43)],
)
def test_what_has_another_form_is_no_key(public_id: str, secret: str) -> None:
    with pytest.raises(ValueError, match="not the id and secret"):
        keys.key_text(public_id, secret)


def test_a_secret_has_256_bits() -> None:
    assert len(set(keys.BASE62)) ** keys.SECRET_LENGTH >= 2**256


def test_a_digest_is_that_of_the_whole_text_given_as_text_or_bytes() -> None:
    assert keys.digest(TEXT) == keys.digest(TEXT.encode()) == sha256(TEXT.encode()).digest()


def test_a_digest_takes_whatever_a_caller_sends() -> None:
    assert len(keys.digest("\udcff é \x00")) == 32


def test_a_mask_shows_the_id_and_never_the_secret() -> None:
    assert keys.mask(TEXT) == keys.masked(ID) == f"fl_{ID}_…"


@pytest.mark.parametrize("text", ["", "sk-live-123456", "fl_short", f"{TEXT}x", f"fl_{ID}_short"])
def test_of_what_is_no_key_nothing_is_shown(text: str) -> None:
    assert keys.mask(text) == "…"
