"""`manage.py users`: the way back in for whoever is locked out, and tokens for pipelines."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.core.management import call_command
from django.test import Client

from tenants import services
from tenants.models import AuditEntry
from tenants.services import Actor
from tests.integration.identity.conftest import named, sign_in

pytestmark = [pytest.mark.django_db, pytest.mark.store, pytest.mark.usefixtures("people")]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Any:
    def said(*words: str) -> list[dict[str, Any]]:
        call_command("users", *words, "--json")
        return [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    return said


def test_everybody_is_listed_with_role_and_state(run: Any, ada: Actor) -> None:
    services.set_enabled("bob", False, actor=ada)
    listed = {each["username"]: each for each in run("list")}
    assert listed["ada"]["role"] == "admin"
    assert (listed["vic"]["role"], listed["vic"]["tenant"]) == ("tenant-viewer", "acme")
    assert [name for name, each in listed.items() if not each["enabled"]] == ["bob"]


def test_a_lost_password_is_replaced_for_one_time(run: Any) -> None:
    (told,) = run("password", "--username", "ada", "--reason", "nobody gets in")
    client = Client()
    assert sign_in(client, "ada", told["password"]).status_code == 302
    assert client.get("/users/").headers["location"] == "/account/password/"
    entry = AuditEntry.objects.get(reason="nobody gets in")
    assert (entry.source, entry.field) == ("command", "password")


def test_a_printed_password_is_for_good_unless_it_is_said_to_be_for_one_time(run: Any) -> None:
    for name, more in (("kept", ()), ("once", ("--one-time",))):
        (told,) = run("create", "--username", name, "--role", "operator", *more)
        assert named(name).check_password(told["password"])
        assert named(name).membership.must_change_password is bool(more)


def test_role_disable_and_enable(run: Any) -> None:
    run("role", "--username", "otto", "--role", "tenant-viewer", "--tenant", "acme")
    assert named("otto").membership.role == "tenant-viewer"
    run("disable", "--username", "otto")
    assert not named("otto").is_active
    run("enable", "--username", "otto")
    assert named("otto").is_active
    run("authenticator", "--username", "otto")


def test_tokens_of_people_and_services(run: Any) -> None:
    (mine,) = run("token", "--username", "otto", "--expires-days", "30")
    (service,) = run("service", "--name", "ci", "--role", "operator", "--expires-days", "7")
    for told in (mine, service):
        client = Client(headers={"authorization": f"Token {told['token']}"})
        assert client.get("/api/v1/tenants/").status_code == 200
    run("revoke", "--name", "ci")
    assert client.get("/api/v1/tenants/").status_code == 401


@pytest.mark.parametrize(
    "words",
    [
        ("disable", "--username", "nobody"),
        ("revoke", "--name", "nobody"),
        ("service", "--name", "CI", "--role", "operator"),
        ("role", "--username", "otto", "--role", "tenant-viewer"),
    ],
)
def test_what_cannot_be_done_is_status_2(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        call_command("users", *words)
    assert ended.value.code == 2
    assert "Refused" in capsys.readouterr().err
