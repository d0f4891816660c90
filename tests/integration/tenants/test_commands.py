"""The commands: what they print, how they exit, and that a refusal changes nothing."""

import io
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from django.core.management import call_command

from tenants import selectors
from tenants.core.keys import digest
from tenants.models import AuditEntry
from tests.unit.tenants.policies import POLICY

pytestmark = [pytest.mark.django_db, pytest.mark.store]


class Ran:
    def __init__(self, status: int, out: str, err: str) -> None:
        self.status, self.out, self.err = status, out, err

    @property
    def json(self) -> Any:
        return json.loads(self.out)


def run(*words: str) -> Ran:
    out, err = io.StringIO(), io.StringIO()
    try:
        call_command(*words, stdout=out, stderr=err)
        status = 0
    except SystemExit as ended:
        status = int(ended.code or 0)
    return Ran(status, out.getvalue(), err.getvalue())


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "policy.yaml"
    path.write_text(POLICY)
    return path


@pytest.fixture
def applied(db: None, file: Path) -> Path:
    assert run("policy", "apply", str(file)).status == 0
    return file


class GoneReader(io.StringIO):
    def write(self, text: str) -> int:
        raise BrokenPipeError(32, "Broken pipe")


def test_a_reader_that_has_seen_enough_is_no_refusal(
    applied: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    err = io.StringIO()
    with (tmp_path / "stdout").open("w") as stdout:
        monkeypatch.setattr(sys, "stdout", stdout)
        call_command("policy", "history", stdout=GoneReader(), stderr=err)
    assert err.getvalue() == ""


def test_apply_puts_a_file_in_force_once(file: Path) -> None:
    first = run("policy", "apply", str(file), "--reason", "first", "--author", "ann")
    assert (first.status, first.err) == (0, "")
    assert "  + tenant acme\n" in first.out
    assert "      budgets.hourly: kind sustained, cost 9, period day\n" in first.out
    assert "Plan: 10 to add, 0 to change, 0 to remove.\nRevision 1 is in force.\n" in first.out
    again = run("policy", "apply", str(file))
    assert (again.status, again.out) == (0, "Nothing to change; revision 1 stands.\n")
    (revision,) = selectors.history()
    assert (revision.author, revision.source, revision.reason) == ("ann", "command", "first")
    assert set(AuditEntry.objects.values_list("actor", "reason")) == {("ann", "first")}


def test_apply_reads_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(POLICY))
    told = run("policy", "apply", "-", "--json").json
    assert (told["revision"], told["created"], len(told["changes"])) == (1, True, 10)


def test_apply_lists_every_issue_with_its_line_and_applies_nothing(applied: Path) -> None:
    applied.write_text(POLICY.replace("weight: 8", "weight: -8").replace("tier: free", "tier: x"))
    ran = run("policy", "apply", str(applied))
    assert (ran.status, ran.out) == (2, "")
    assert "line 24: tenants[acme].weight: weight is -8: must be greater" in ran.err
    assert "line 31: tenants[bricks].tier: there is no tier 'x'; known: free, gold" in ran.err
    assert "Refused: 2 issues, nothing was changed." in ran.err
    as_json = run("policy", "apply", str(applied), "--json")
    assert as_json.status == 2
    assert [issue["line"] for issue in as_json.json["issues"]] == [24, 31]
    assert set(as_json.json["issues"][0]) == {"path", "line", "value", "message"}
    assert selectors.current_revision() == 1


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    latin = tmp_path / "latin.yaml"
    latin.write_bytes(b"version: 1 # \xe9")
    for path in (tmp_path / "missing.yaml", tmp_path, latin):
        ran = run("policy", "apply", str(path))
        assert ran.status == 2
        assert ran.err.startswith("Refused: ")


def test_an_export_applies_to_no_change_and_exports_the_same(applied: Path) -> None:
    exported = run("policy", "export").out
    applied.write_text(exported)
    assert run("policy", "apply", str(applied)).out.startswith("Nothing to change")
    assert run("policy", "diff", str(applied)).status == 0
    assert run("policy", "export").out == exported


def test_export_as_json_to_a_file_and_of_an_earlier_revision(applied: Path) -> None:
    assert run("policy", "export", "--json").json == yaml.safe_load(run("policy", "export").out)
    target = applied.parent / "out.yaml"
    run("policy", "export", str(target))
    assert target.read_text() == run("policy", "export").out
    assert run("policy", "export", "0").out.startswith("version: 1\nlanes: []")
    assert run("policy", "export", "9").status == 2


def test_diff_exits_1_when_there_is_a_difference(applied: Path) -> None:
    same = run("policy", "diff", str(applied))
    assert (same.status, same.out) == (0, "No difference from revision 1.\n")
    applied.write_text(POLICY.replace("weight: 8", "weight: 9"))
    other = run("policy", "diff", str(applied))
    assert other.status == 1
    assert other.out.startswith("  ~ tenant acme\n      weight: 8 → 9\n")
    assert other.out.endswith("Plan: 0 to add, 1 to change, 0 to remove.\n")
    as_json = run("policy", "diff", str(applied), "--json")
    assert (as_json.status, as_json.json["changes"]) == (
        1,
        [{"kind": "tenant", "name": "acme", "field": "weight", "old": 8, "new": 9}],
    )
    applied.write_text("nonsense: [")
    assert run("policy", "diff", str(applied)).status == 2
    assert run("policy", "diff", "0").status == 1
    assert selectors.current_revision() == 1


def test_history_and_rollback(applied: Path) -> None:
    applied.write_text(POLICY.replace("weight: 8", "weight: 9"))
    run("policy", "apply", str(applied), "--reason", "more")
    back = run("policy", "rollback", "1", "--reason", "oops", "--author", "ann")
    assert back.out.startswith("  ~ tenant acme\n      weight: 9 → 8\n")
    assert back.out.endswith("\nRevision 3 is in force.\n")
    told = run("policy", "history", "--json").json
    assert [(one["number"], one["reason"]) for one in told] == [(3, "oops"), (2, "more"), (1, "")]
    lines = run("policy", "history").out.splitlines()
    assert len(lines) == 3
    assert " UTC  ann (command)  1 change  oops" in lines[0]
    assert run("policy", "rollback", "77").status == 2


def test_history_of_nothing_says_so() -> None:
    assert "revision 0, the empty policy" in run("policy", "history").out
    assert run("policy", "history", "--json").json == []


def test_a_key_is_made_listed_rotated_and_revoked(applied: Path) -> None:
    made = run("keys", "create", "--tenant", "acme", "--application", "bot", "--name", "chat",
               "--expires-days", "30", "--json").json  # fmt: skip
    assert (made["tenant"], made["application"], made["name"]) == ("acme", "bot", "chat")
    assert digest(made["key"]) in selectors.load_snapshot().keys
    listed = run("keys", "list", "--tenant", "acme", "--json")
    assert [key["id"] for key in listed.json] == [made["id"]]
    assert made["key"] not in listed.out + run("keys", "list").out
    rotated = run("keys", "rotate", made["id"], "--grace-hours", "2").json
    assert rotated["id"] == made["id"]
    assert rotated["key"] != made["key"]
    assert len(selectors.load_snapshot().keys) == 2
    shown = run("keys", "list").out.split()[0]  # with its fl_ and dots, as a person copies it
    assert run("keys", "revoke", shown).out == f"Key {made['id']} is revoked.\n"
    assert selectors.load_snapshot().keys == {}
    assert run("keys", "list", "--json").json[0]["state"] == "revoked"
    assert run("keys", "list", "--tenant", "bricks", "--json").json == []


def test_a_key_told_to_a_person_is_json_too_and_says_that_it_is_told_once(applied: Path) -> None:
    ran = run("keys", "create", "--tenant", "acme")
    assert ran.json["key"].startswith(f"fl_{ran.json['id']}_")
    assert "not shown again" in ran.err


@pytest.mark.parametrize(
    "words",
    [
        ("keys", "create", "--tenant", "nobody"),
        ("keys", "create", "--tenant", "acme", "--application", "x"),
        ("keys", "create", "--tenant", "acme", "--expires-days", "-1"),
        ("keys", "create", "--tenant", "acme", "--author", "x" * 200),
        ("keys", "rotate", "nothing"),
        ("keys", "revoke", "nothing"),
        ("keys", "revoke", "fl_"),
        ("users", "create", "--username", "ann", "--role", "tenant-admin"),
        ("users", "create", "--username", "ann", "--role", "admin", "--tenant", "acme"),
        ("users", "create", "--username", "a b", "--role", "admin"),
    ],
)
def test_what_is_wrong_is_refused(words: tuple[str, ...], applied: Path) -> None:
    ran = run(*words)
    assert (ran.status, ran.out) == (2, "")
    assert "Refused" in ran.err
    as_json = run(*words, "--json")
    assert as_json.status == 2
    assert set(as_json.json) <= {"issues", "error"}
    assert selectors.current_version() == 1


@pytest.mark.parametrize(
    ("command", "action"),
    [("policy", "diff"), ("keys", "rotate"), ("usage", "export"), ("users", "role")],
)
def test_a_command_without_an_action_lists_them(command: str, action: str) -> None:
    ran = run(command)
    assert ran.status == 2
    assert re.search(rf"^  {action} +\w", ran.err, re.MULTILINE)


def test_a_user_is_made_with_password_and_token(applied: Path) -> None:
    made = run("users", "create", "--username", "ann", "--role", "tenant-viewer",
               "--tenant", "acme", "--json").json  # fmt: skip
    assert (made["username"], made["role"], made["tenant"]) == ("ann", "tenant-viewer", "acme")
    assert made["password"]
    assert made["token"]
    told = run("users", "create", "--username", "olga", "--role", "operator")
    assert "password: " in told.out
    assert "token: " in told.out
    assert "not shown again" in told.err
