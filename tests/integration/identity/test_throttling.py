"""Wrong passwords: after some, a pause that the page tells the end of."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from axes.models import AccessAttempt
from django.contrib.sessions.models import Session
from django.core.management import call_command
from django.test import Client
from django.utils import timezone

from fairlane.tasks import forget_sessions
from tenants.models import AuditEntry
from tests import builders
from tests.integration.identity.conftest import sign_in

pytestmark = [pytest.mark.django_db, pytest.mark.store, pytest.mark.usefixtures("people")]


@pytest.fixture(autouse=True)
def three_tries(settings: Any) -> None:
    settings.AXES_FAILURE_LIMIT = 3


def fail(times: int, username: str = "alice", **more: Any) -> Any:
    for _ in range(times):
        answer = sign_in(Client(), username, "wrong", **more)
    return answer


def test_the_third_wrong_password_locks_with_the_time_to_come_back() -> None:
    assert fail(2).status_code == 200
    locked = fail(1)
    assert locked.status_code == 429
    assert 880 <= int(locked.headers["retry-after"]) <= 900
    assert "Come back in 15 minutes" in locked.content.decode()
    assert sign_in(Client(), "alice", builders.PASSWORD).status_code == 429


def test_others_and_other_addresses_are_let_in_meanwhile() -> None:
    fail(3)
    assert sign_in(Client(), "vic", builders.PASSWORD).status_code == 302
    from_home = sign_in(Client(), "alice", builders.PASSWORD, REMOTE_ADDR="198.51.100.7")
    assert from_home.status_code == 302


def test_whoever_claims_another_address_stays_locked() -> None:
    fail(3)
    claims = {"x-forwarded-for": "198.51.100.7", "forwarded": "for=198.51.100.7"}
    assert sign_in(Client(), "alice", builders.PASSWORD, headers=claims).status_code == 429


def test_trying_on_does_not_make_it_longer() -> None:
    fail(3)
    earlier = timezone.now() - timedelta(minutes=10)
    AccessAttempt.objects.update(attempt_time=earlier)
    assert "in 5 minutes" in fail(2).content.decode()


def test_it_ends_by_itself_and_a_right_password_counts_anew() -> None:
    fail(3)
    AccessAttempt.objects.update(attempt_time=timezone.now() - timedelta(minutes=16))
    assert sign_in(Client(), "alice", builders.PASSWORD).status_code == 302
    assert fail(2).status_code == 200


def test_a_name_that_nobody_has_is_answered_alike() -> None:
    known, unknown = (fail(1, name).content.decode() for name in ("alice", "nobody"))
    token = re.compile(r'value="[A-Za-z0-9]{64}"|value="(alice|nobody)"')
    assert token.sub("", known) == token.sub("", unknown)
    assert fail(2, "nobody").status_code == 429


def test_no_password_is_kept() -> None:
    fail(2)
    assert "wrong" not in repr(list(AccessAttempt.objects.values()))


def unlock(username: str) -> None:
    call_command(
        "users", "unlock", "--username", username, "--author", "ada", "--reason", "it is them"
    )


def unlockings() -> list[tuple[Any, ...]]:
    about = AuditEntry.objects.filter(kind="user", field="wrong_passwords")
    return list(about.values_list("actor", "source", "name", "old", "new", "reason"))


def test_an_admin_with_a_shell_ends_it_and_the_audit_says_who(
    capsys: pytest.CaptureFixture[str],
) -> None:
    fail(3)
    unlock("alice")
    assert capsys.readouterr().out == "alice: 3 wrong passwords forgotten.\n"
    assert unlockings() == [("ada", "command", "alice", 3, 0, "it is them")]
    assert sign_in(Client(), "alice", builders.PASSWORD).status_code == 302


def test_nothing_to_forget_is_said_and_leaves_no_entry(capsys: pytest.CaptureFixture[str]) -> None:
    unlock("alice")
    assert capsys.readouterr().out == "alice: no wrong passwords count now.\n"
    assert not unlockings()


def test_an_unlocked_name_that_nobody_has_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    fail(3, "alcie")
    with pytest.raises(SystemExit):
        unlock("alcie")
    assert "there is no user 'alcie'" in capsys.readouterr().err


def test_an_admin_sees_the_pause_on_the_users_page_and_ends_it_there(admin: Client) -> None:
    assert "Wrong passwords" not in admin.get("/users/alice/").content.decode()
    fail(3)
    fail(1, REMOTE_ADDR="198.51.100.7")
    page = admin.get("/users/alice/").content.decode()
    assert page.count('<span class="tag bad">locked</span>') == 1
    assert "3 from 127.0.0.1" in page
    assert "1 from 198.51.100.7" in page
    assert "Unlock alice: done." in admin.post("/users/alice/unlock/", follow=True).content.decode()
    assert [(by, old) for by, _, _, old, _, _ in unlockings()] == [("ada", 4)]
    assert sign_in(Client(), "alice", builders.PASSWORD).status_code == 302


def test_the_admin_api_ends_it(admin: Client) -> None:
    fail(3)
    assert admin.delete("/api/v1/users/alice/wrong-passwords/").status_code == 204
    assert [(by, source) for by, source, *_ in unlockings()] == [("ada", "api")]
    assert sign_in(Client(), "alice", builders.PASSWORD).status_code == 302


def test_whoever_forgot_a_password_and_gets_a_new_one_is_not_kept_waiting(admin: Client) -> None:
    fail(3)
    answer = admin.post("/api/v1/users/alice/password/", {}, content_type="application/json")
    assert sign_in(Client(), "alice", answer.json()["password"]).status_code == 302
    assert len(unlockings()) == 1


def test_what_is_over_is_forgotten(admin: Client) -> None:
    gone = Client()
    sign_in(gone, "bob", builders.PASSWORD)
    fail(1, "alice")
    fail(1, "vic")
    AccessAttempt.objects.filter(username="vic").update(
        attempt_time=timezone.now() - timedelta(minutes=16)
    )
    Session.objects.filter(pk=gone.session.session_key).update(expire_date=timezone.now())
    assert forget_sessions() == 2
    assert [each.username for each in AccessAttempt.objects.all()] == ["alice"]
    assert admin.get("/account/").status_code == 200


def test_a_name_that_nobody_can_have_is_not_even_looked_up() -> None:
    """Stored, each try would take what a body may hold; PostgreSQL would refuse it as an error."""
    answer = fail(1, username="a" * 100_000)
    assert answer.status_code == 200
    assert "do not match" in answer.content.decode()
    assert not AccessAttempt.objects.exists()
