"""An authenticator, its recovery codes, and who may require or forget them."""

from __future__ import annotations

import re
import time
from binascii import unhexlify
from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client
from django_otp.oath import TOTP
from django_otp.plugins.otp_totp.models import TOTPDevice

from tenants import services
from tenants.models import AuditEntry, RecoveryCode
from tests import builders
from tests.integration.identity.conftest import is_in, named, sign_in

pytestmark = [pytest.mark.django_db, pytest.mark.store]


def code_of(username: str, steps_later: int = 0) -> str:
    """What the app shows; a code works once, so the next one is that of a later step. The app's
    clock is as far behind as a step that turned while its last code was sent made it seem."""
    device = TOTPDevice.objects.get(user__username=username)
    shown = TOTP(unhexlify(device.key), drift=device.drift)
    shown.time = time.time() + 30 * steps_later
    return f"{shown.token():06}"


def forgive(username: str) -> None:
    """As if the time had passed that wrong codes make the next try wait."""
    TOTPDevice.objects.get(user__username=username).throttle_reset()


def enrolled(client: Client, username: str) -> list[str]:
    return enrolled_by(client, username)[1]


def enrolled_by(client: Client, username: str) -> tuple[str, list[str]]:
    """The code that the authenticator was added by, and the recovery codes."""
    page = client.get("/account/authenticator/")
    assert "<svg" in page.content.decode()
    wrong = client.post("/account/authenticator/", {"code": "000000"})
    assert "does not fit" in wrong.content.decode()
    forgive(username)
    shown = code_of(username)
    done = client.post("/account/authenticator/", {"code": f"{shown[:3]} {shown[3:]}"})
    codes = re.search(r'id="codes">([^<]+)<', done.content.decode())
    assert codes is not None
    return shown, codes[1].split()


@pytest.fixture
def alice(as_: Callable[[str], Client]) -> Client:
    return as_("tenant-admin")


def test_whoever_has_one_is_asked_for_a_code_and_not_in_before(alice: Client) -> None:
    enrolled(alice, "alice")
    client = Client()
    assert sign_in(client, "alice", builders.PASSWORD).headers["location"] == "/login/code/"
    assert not is_in(client)
    assert client.get("/api/v1/keys/").status_code == 401
    assert client.post("/login/code/", {"code": "000000"}).status_code == 400
    assert not is_in(client)
    forgive("alice")
    assert client.post("/login/code/", {"code": code_of("alice", 1)}).status_code == 302
    assert is_in(client)


def test_a_code_works_once(alice: Client) -> None:
    used, _ = enrolled_by(alice, "alice")
    client = Client()
    sign_in(client, "alice", builders.PASSWORD)
    assert client.post("/login/code/", {"code": used}).status_code == 400


def test_wrong_codes_make_the_next_try_wait_even_a_right_one(alice: Client) -> None:
    codes = enrolled(alice, "alice")
    client = Client()
    sign_in(client, "alice", builders.PASSWORD)
    for _ in range(8):
        answer = client.post("/login/code/", {"code": "000000"})
        TOTPDevice.objects.get(user__username="alice").throttle_increment()
    assert "Try again in" in answer.content.decode()
    for right in (code_of("alice", 1), codes[0]):
        assert client.post("/login/code/", {"code": right}).status_code == 400
    forgive("alice")
    assert client.post("/login/code/", {"code": codes[0]}).status_code == 302


def test_a_recovery_code_works_once_and_is_kept_as_a_digest(alice: Client) -> None:
    codes = enrolled(alice, "alice")
    assert len(set(codes)) == 10
    assert not set(codes) & set(RecoveryCode.objects.values_list("digest", flat=True))
    for expected in (302, 400):
        client = Client()
        sign_in(client, "alice", builders.PASSWORD)
        answer = client.post("/login/code/", {"code": codes[0].upper().replace("-", " ")})
        assert answer.status_code == expected
        forgive("alice")
    assert named("alice").recovery_codes.count() == 9
    assert alice.post("/account/recovery-codes/").status_code == 400
    made = alice.post("/account/recovery-codes/", {"code": codes[1]})
    assert 'id="codes"' in made.content.decode()
    assert named("alice").recovery_codes.count() == 10


def test_the_page_after_signing_in_is_the_one_that_was_asked_for(alice: Client) -> None:
    codes = enrolled(alice, "alice")
    client = Client()
    client.post(
        "/login/",
        {"username": "alice", "password": builders.PASSWORD, "next": "/keys/?q=a"},
    )
    assert client.post("/login/code/", {"code": codes[0]}).headers["location"] == "/keys/?q=a"
    assert client.get("/login/code/").headers["location"] == "/login/"


def test_who_waits_for_a_code_is_forgotten_when_the_account_changes(
    alice: Client, admin: Client
) -> None:
    codes = enrolled(alice, "alice")
    for change in ("password", "disable"):
        client = Client()
        sign_in(client, "alice", builders.PASSWORD)
        admin.post(f"/users/alice/{change}/")
        answer = client.post("/login/code/", {"code": codes[0]})
        assert answer.headers["location"] == "/login/"
        named_alice = named("alice")
        named_alice.set_password(builders.PASSWORD)
        named_alice.save()


def test_required_it_comes_before_everything_else(alice: Client, admin: Client) -> None:
    admin.post("/users/alice/require-totp/", {"reason": "audit finding 7"})
    assert AuditEntry.objects.get(reason="audit finding 7").field == "must_use_totp"
    assert alice.get("/keys/").headers["location"] == "/account/authenticator/"
    assert alice.get("/api/v1/keys/").status_code == 403
    codes = enrolled(alice, "alice")
    assert is_in(alice)
    refused = alice.post("/account/authenticator/off/", {"code": codes[0]})
    assert (refused.status_code, "requires it" in refused.content.decode()) == (400, True)
    admin.post("/users/alice/allow-password/")
    assert alice.post("/account/authenticator/off/", {"code": codes[0]}).status_code == 400  # used
    forgive("alice")
    assert alice.post("/account/authenticator/off/", {"code": codes[1]}).status_code == 302
    assert alice.post("/account/authenticator/off/").headers["location"] == "/account/"
    assert sign_in(Client(), "alice", builders.PASSWORD).headers["location"] == "/"


def test_an_admin_forgets_what_was_lost_and_ends_the_sessions(alice: Client, admin: Client) -> None:
    enrolled(alice, "alice")
    admin.post("/users/alice/reset-totp/", {"reason": "lost phone"})
    assert not is_in(alice)
    assert not TOTPDevice.objects.filter(user__username="alice").exists()
    assert named("alice").recovery_codes.count() == 0
    assert AuditEntry.objects.get(reason="lost phone").old is True
    assert sign_in(Client(), "alice", builders.PASSWORD).headers["location"] == "/"


def test_no_secret_of_it_stands_in_the_audit(alice: Client) -> None:
    codes = enrolled(alice, "alice")
    key = TOTPDevice.objects.get(user__username="alice").key
    kept = repr(list(AuditEntry.objects.values()))
    assert not [each for each in (*codes, key) if each in kept]


def test_codes_without_an_authenticator_are_refused(people: dict[str, Any]) -> None:
    from tenants.services import second_factor

    vic = people["tenant-viewer"]
    with pytest.raises(services.PolicyRefused, match="no authenticator"):
        second_factor.new_recovery_codes(vic, actor=services.actor_for(vic, "page"))
    assert not second_factor.verify(vic, "123456")
