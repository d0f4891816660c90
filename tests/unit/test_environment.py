"""A bad setting stops the start with one line that names the variable and what it takes."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from django.core.exceptions import ImproperlyConfigured

from fairlane import signing_in
from fairlane.environment import ROOT, folder, hosts, redis_url


def start(
    *arguments: str, command: Sequence[str] = ("check",), **given: str
) -> subprocess.CompletedProcess[str]:
    kept = {k: v for k, v in os.environ.items() if k not in ("SECRET_KEY", "DATABASE_URL")}
    return subprocess.run(
        [sys.executable, "manage.py", *command, *arguments],
        cwd=ROOT,
        env={**kept, "SECRET_KEY": "only-for-tests", **given},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    ("name", "value", "takes"),
    [
        ("SECRET_KEY", "", "a long random text"),
        ("DATABASE_URL", "mysql://x", "postgres://"),
        ("DATABASE_URL", "postgres://db", "postgres://user:password@host:5432/name"),
        ("REDIS_URL", "http://x", "redis://"),
        ("ALLOWED_HOSTS", "https://fairlane.example", "host names without scheme"),
        ("CSRF_TRUSTED_ORIGINS", "fairlane.example", "origins such as https://"),
        ("FAIRLANE_STATE_LOSS", "open", "fail-open, fail-closed"),
        ("FAIRLANE_LOG", "xml", "text, json"),
        ("FAIRLANE_DATA_DIR", "/proc/nowhere", "a folder that can be written"),
        ("FAIRLANE_MAX_BODY_BYTES", "ten", "a whole number"),
        ("DEBUG", "perhaps", "true or false"),
        ("TRUSTED_PROXIES", "10.0.0.5,proxy", "addresses and networks"),
        ("OIDC_ISSUER", "http://id.example", "https://"),
    ],
)
def test_a_bad_value_is_one_line_that_names_it(name: str, value: str, takes: str) -> None:
    ended = start(**{name: value})
    assert ended.returncode == 1
    assert len(ended.stderr.strip().splitlines()) == 1
    assert name in ended.stderr
    assert takes in ended.stderr


def test_what_is_set_to_nothing_is_unset(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As a compose file sets what its own environment lacks."""
    monkeypatch.setenv("ALLOWED_HOSTS", "")
    monkeypatch.setenv("FAIRLANE_DATA_DIR", "")
    assert hosts("ALLOWED_HOSTS", "localhost,[::1]") == ["localhost", "[::1]"]
    assert folder("FAIRLANE_DATA_DIR", tmp_path / "var") == tmp_path / "var"


@pytest.mark.parametrize("given", ["*", ".example.com", "a-b.example.com, 10.0.0.5", "[fe80::1]"])
def test_the_console_may_have_any_host_name(monkeypatch: pytest.MonkeyPatch, given: str) -> None:
    monkeypatch.setenv("ALLOWED_HOSTS", given)
    assert hosts("ALLOWED_HOSTS", "localhost") == given.split(", ")


@pytest.mark.parametrize(
    "given",
    ["h:abc/0", "h:0/0", "h:99999/0", "h/main", "h/-1", "h:6379/0#x", "half/of it@h:6379/0"],
)
def test_a_bad_redis_url_is_named_without_its_password(
    monkeypatch: pytest.MonkeyPatch, given: str
) -> None:
    monkeypatch.setenv("REDIS_URL", f"redis://user:s3cret{'' if '@' in given else '@'}{given}")
    with pytest.raises(ImproperlyConfigured, match=r"REDIS_URL has .* redis://") as bad:
        redis_url("REDIS_URL")
    assert "s3cret" not in str(bad.value)


def test_an_option_that_redis_py_does_not_know_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REDIS_URL", "redis://user:s3cret@h:6379/0?foo=1")
    with pytest.raises(ImproperlyConfigured, match="foo") as bad:
        redis_url("REDIS_URL")
    assert "s3cret" not in str(bad.value)


@pytest.mark.parametrize(
    "given",
    [
        *("", "redis://h", "redis://h:6379/", "redis:///3", "rediss://u:p%40@h:6379/15?protocol=3"),
        *("redis://[::1]:6379/0", "unix:///run/redis.sock?db=1"),
    ],
)
def test_a_good_one_is_taken_as_it_is(monkeypatch: pytest.MonkeyPatch, given: str) -> None:
    monkeypatch.setenv("REDIS_URL", given)
    assert redis_url("REDIS_URL") == given


def test_good_values_start() -> None:
    assert start().returncode == 0


OIDC = {
    "OIDC_ISSUER": "https://id.example",
    "OIDC_CLIENT_ID": "fairlane",
    "OIDC_CLIENT_SECRET": "s3cret",
}


@pytest.mark.parametrize(
    ("name", "value", "takes"),
    [
        ("OIDC_CLIENT_ID", "", "OIDC_ISSUER needs it"),
        ("OIDC_CLIENT_SECRET", "", "OIDC_ISSUER needs it"),
        ("OIDC_SCOPES", "profile", "openid"),
        ("OIDC_ROLES", "admins", "group=role"),
        ("OIDC_ROLES", "admins=root", "admin, operator"),
        ("OIDC_ROLES", "ok=admin,acme=tenant-admin", "needs a tenant"),
        ("OIDC_ROLES", "ops=operator:acme", "takes none"),
        ("OIDC_ROLES", "=operator", "group=role"),
    ],
)
def test_a_bad_value_of_single_sign_on_is_named(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, takes: str
) -> None:
    for each, given in (OIDC | {name: value}).items():
        monkeypatch.setenv(each, given)
    with pytest.raises(ImproperlyConfigured, match=name) as refused:
        signing_in.oidc()
    assert takes in str(refused.value)
    assert "s3cret" not in str(refused.value)


def test_groups_are_mapped_in_the_order_that_they_are_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    roles = "cn=ops=operator, acme users=tenant-viewer:acme,"
    for each, given in (OIDC | {"OIDC_ROLES": roles}).items():
        monkeypatch.setenv(each, given)
    found = signing_in.oidc()
    assert found is not None
    assert found.roles == (("cn=ops", "operator", None), ("acme users", "tenant-viewer", "acme"))
    assert "s3cret" not in repr(found)
    monkeypatch.setenv("OIDC_ISSUER", "")
    assert signing_in.oidc() is None


def test_nothing_is_to_be_said_against_production(tmp_path: Path) -> None:
    """`check --deploy`, with warnings counted as faults, local accounts and single sign-on."""
    production = {
        "SECRET_KEY": "".join(f"{number:x}!" for number in range(60)),
        "ALLOWED_HOSTS": "fairlane.example",
        "HTTPS_ONLY": "true",
        "DEBUG": "false",
        "FAIRLANE_DATA_DIR": str(tmp_path),
    }
    for more in ({}, {**OIDC, "OIDC_ROLES": "a b=admin,acme=tenant-viewer:acme"}):
        ended = start("--deploy", "--fail-level", "WARNING", **production, **more)
        assert (ended.returncode, ended.stderr) == (0, ""), ended.stderr
        assert "no issues" in ended.stdout


@pytest.mark.parametrize(
    "command", [["serve", "--port", "0"], ["migrate"], ["usage", "verify"]], ids=" ".join
)
def test_a_database_that_is_not_there_is_one_line(command: list[str]) -> None:
    url = "sqlite:////nowhere/fairlane.sqlite3"
    ended = start(DATABASE_URL=url, command=command)
    assert ended.returncode == 1
    (line,) = ended.stderr.strip().splitlines()
    assert line.startswith("fairlane: The database ")
    assert "DATABASE_URL" in line
