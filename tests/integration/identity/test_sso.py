"""Signing in by OpenID Connect, against a provider and a console on real sockets."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from fairlane.environment import ROOT
from tests.integration.identity.provider import CLIENT_ID, CLIENT_SECRET, Provider, running

ROLES = "platform=admin,on-call=operator,acme users=tenant-viewer:acme,gone=tenant-viewer:nobody"


@dataclass
class Site:
    url: str
    token: str
    provider: Provider
    browsers: list[httpx.Client] = field(default_factory=list)

    def sign_in(self, sub: str, *groups: str, **claims: Any) -> tuple[httpx.Client, httpx.Response]:
        """A browser that has gone the whole way, and the page that it ended on."""
        self.provider.claims = {
            "sub": sub,
            "preferred_username": sub,
            "realm_access": {"groups": list(groups)},
            **claims,
        }
        browser = httpx.Client(base_url=self.url, follow_redirects=True, timeout=60)
        self.browsers.append(browser)
        return browser, browser.get("/oidc/login/?next=/account/")

    def user(self, name: str) -> dict[str, Any]:
        answer = self.api("GET", f"users/{name}/")
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    def role(self, name: str) -> tuple[str | None, str | None]:
        said = self.user(name)
        return said["role"], said["tenant"]

    def api(self, method: str, path: str, **body: Any) -> httpx.Response:
        headers = {"Authorization": f"Token {self.token}", "If-Match": "*"}
        return httpx.request(
            method, f"{self.url}/api/v1/{path}", headers=headers, json=body or None, timeout=60
        )


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with running() as provider, socket.create_server(("127.0.0.1", 0)) as door:
        process = start(provider, door, tmp_path_factory.mktemp("sso"))
        try:
            assert process.stdout is not None
            token = process.stdout.readline().strip()
            assert token, "the console did not start; what it said is above"
            yield Site(f"http://127.0.0.1:{door.getsockname()[1]}", token, provider)
        finally:
            process.terminate()
            process.communicate(timeout=60)


def start(provider: Provider, door: socket.socket, folder: Path) -> subprocess.Popen[str]:
    given = {
        "FAIRLANE_DATA_DIR": str(folder),
        "DATABASE_URL": "",
        "FAIRLANE_ROLE": "console",
        "OIDC_ISSUER": provider.issuer,
        "OIDC_CLIENT_ID": CLIENT_ID,
        "OIDC_CLIENT_SECRET": CLIENT_SECRET,
        "OIDC_NAME": "Example ID",
        "OIDC_ROLE_CLAIM": "realm_access.groups",
        "OIDC_ROLES": ROLES,
    }
    return subprocess.Popen(
        [sys.executable, "-m", "tests.integration.identity.console_process", str(door.fileno())],
        cwd=ROOT,
        env={**os.environ, **given},
        pass_fds=[door.fileno()],
        stdout=subprocess.PIPE,
        text=True,
    )


@pytest.fixture(autouse=True)
def well(site: Site) -> Iterator[None]:
    site.provider.fault, site.provider.audience = "", CLIENT_ID
    yield
    while site.browsers:
        site.browsers.pop().close()


def test_the_login_page_offers_it_beside_local_accounts(site: Site) -> None:
    page = httpx.get(f"{site.url}/login/", timeout=60).text
    assert "Log in with Example ID" in page
    assert 'name="password"' in page


def test_whoever_is_unknown_and_in_no_group_gets_an_account_that_sees_nothing(site: Site) -> None:
    browser, page = site.sign_in("nina", "cooks")
    assert page.status_code == 403
    assert "no role yet" in page.text
    assert site.role("nina") == (None, None)
    assert browser.get("/api/v1/keys/").status_code == 403


def test_a_group_gives_a_role_and_the_next_sign_in_another(site: Site) -> None:
    for groups, expected in (
        (("acme users", "on-call"), ("operator", None)),  # the first that is written
        (("acme users",), ("tenant-viewer", "acme")),
        (("platform",), ("admin", None)),
        ((), (None, None)),
    ):
        _, page = site.sign_in("omar", *groups)
        assert page.status_code == (200 if groups else 403)
        assert site.role("omar") == expected
    told = site.api("GET", "audit/?name=omar").json()["results"]
    assert [each["new"] for each in told if each["field"] == "role"][:2] == [None, "admin"]
    assert {each["source"] for each in told} == {"page"}


def test_a_role_given_by_hand_stays_while_no_group_says_one(site: Site) -> None:
    site.sign_in("hana")
    assert site.api("PATCH", "users/hana/", role="operator").status_code == 200
    _, page = site.sign_in("hana")
    assert (page.status_code, site.role("hana")) == (200, ("operator", None))


def test_a_group_of_a_tenant_that_is_not_there_gives_nothing(site: Site) -> None:
    _, page = site.sign_in("gil", "gone")
    assert (page.status_code, site.role("gil")) == (403, (None, None))


def test_nobody_becomes_a_local_account_by_its_name_or_address(site: Site) -> None:
    _, page = site.sign_in("another-ada", preferred_username="ada", email="ada@example.test")
    assert page.status_code == 403
    assert "ada-2" in page.text or site.user("ada-2")["role"] is None
    assert site.role("ada") == ("admin", None)
    _, page = site.sign_in("a-third", preferred_username="ADA", email="ada@example.test")
    assert page.status_code == 403
    assert site.user("ADA-3")["role"] is None


def test_the_same_person_is_the_same_account_under_another_name(site: Site) -> None:
    site.sign_in("kim", "on-call")
    site.sign_in("kim", "on-call", preferred_username="kimberly")
    assert site.api("GET", "users/kimberly/").status_code == 404
    assert site.role("kim") == ("operator", None)


def test_an_account_is_never_linked_to_another(site: Site) -> None:
    browser, _ = site.sign_in("lee", "on-call")
    answer = browser.get("/oidc/login/?process=connect")
    assert answer.status_code == 403
    assert "not offered" in answer.text


def test_a_disabled_account_stays_out(site: Site) -> None:
    browser, _ = site.sign_in("dora", "on-call")
    assert browser.get("/account/").status_code == 200
    assert site.api("PATCH", "users/dora/", enabled=False).status_code == 200
    assert browser.get("/account/").url.path == "/login/"
    _, page = site.sign_in("dora", "on-call")
    assert (page.status_code, "disabled" in page.text) == (403, True)


def test_the_second_factor_is_the_providers(site: Site) -> None:
    site.sign_in("faye", "on-call")
    site.api("PATCH", "users/faye/", must_use_totp=True)
    browser, page = site.sign_in("faye", "on-call")
    assert page.status_code == 200
    assert browser.get("/users/").url.path == "/users/"


@pytest.mark.parametrize("fault", ["denied", "mute"])
def test_what_the_provider_refuses_is_told(site: Site, fault: str) -> None:
    site.provider.fault = fault
    browser, page = site.sign_in("max", "platform")
    assert (page.status_code, "did not confirm" in page.text) == (403, True)
    assert browser.get("/account/").url.path == "/login/"


def test_an_id_token_for_somebody_else_is_refused(site: Site) -> None:
    site.provider.audience = "another-client"
    _, page = site.sign_in("max", "platform")
    assert (page.status_code, "did not confirm" in page.text) == (403, True)


def test_an_answer_that_nobody_asked_for_is_refused(site: Site) -> None:
    page = httpx.get(
        f"{site.url}/oidc/callback/?code=abc&state=made-up", follow_redirects=True, timeout=60
    )
    assert page.status_code == 403
    assert site.api("GET", "users/abc/").status_code == 404


def test_a_provider_that_is_away_is_told_and_local_accounts_work(site: Site) -> None:
    site.provider.fault = "down"
    _, page = site.sign_in("nina")
    assert (page.status_code, "out of reach" in page.text) == (502, True)
    assert httpx.get(f"{site.url}/login/", timeout=60).status_code == 200
