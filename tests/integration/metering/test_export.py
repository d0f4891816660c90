"""`manage.py usage export`: what there is, in the contract's words, whole or not at all."""

from __future__ import annotations

import csv
import io
import json
import re
from datetime import timedelta

import pytest
from django.core.management import CommandError, call_command

from metering import export, store
from tests import builders
from tests.integration.metering.records import NOON, ended, record

pytestmark = [pytest.mark.django_db, pytest.mark.store]
CONTRACT = (  # noqa: SIM905  as the contract writes it
    "request_id, at, tenant, application, key, model, lane, interaction, endpoint, prompt_tokens, "
    "cached_tokens, completion_tokens, usage_source, cost, estimated_cost, queue_ms, ttft_ms, "
    "e2e_ms, status, finish_reason, throttle_reason, policy_revision"
).split(", ")


@pytest.fixture(autouse=True)
def three_records():
    records = [
        record(request_id="late", at=NOON + timedelta(hours=1)),
        record(request_id="early", interaction='a "b", c\nd'),
        record(request_id="bobs", tenant="bob", at=NOON + timedelta(minutes=1), ttft_ms=2.5),
    ]
    store.save([ended(one) for one in records], lambda account: None)


def exported(*arguments):
    out = io.StringIO()
    call_command("usage", "export", *arguments, stdout=out)
    return out.getvalue()


def ids(*arguments):
    return [json.loads(line)["request_id"] for line in exported(*arguments).splitlines()]


def test_lines_carry_the_contracts_fields_oldest_first():
    lines = [json.loads(line) for line in exported().splitlines()]
    assert [list(line) for line in lines] == [CONTRACT] * 3
    assert [line["request_id"] for line in lines] == ["early", "bobs", "late"]
    assert lines[0]["at"] == "2026-11-29T12:00:30.250000Z"
    assert (lines[0]["ttft_ms"], lines[1]["ttft_ms"]) == (None, 2.5)


def test_csv_says_the_same():
    rows = list(csv.DictReader(io.StringIO(exported("--format", "csv"))))
    assert list(rows[0]) == CONTRACT
    assert [row["request_id"] for row in rows] == ["early", "bobs", "late"]
    assert rows[0]["interaction"] == 'a "b", c\nd'
    assert rows[0]["at"] == "2026-11-29T12:00:30.250000Z"


@pytest.mark.parametrize("sign", "=+-@\t\r\n")
def test_a_spreadsheet_runs_nothing_that_a_caller_named(sign):
    named = record(request_id="evil", model=f"{sign}1+1", interaction="x\r=y")
    row = next(csv.DictReader(io.StringIO("".join(export.lines([named], "csv")))))
    plain = sign.replace("\r", "\n")
    assert (row["model"], row["interaction"]) == (f"'{plain}1+1", "x\n=y")


def test_it_is_narrowed_by_tenant_and_half_open_time():
    assert ids("--tenant", "bob") == ["bobs"]
    assert ids("--since", "2026-11-29T12:01:30.250Z") == ["bobs", "late"]
    assert ids("--until", "2026-11-29T12:01:30.250Z") == ["early"]
    assert ids("--since", "2026-11-29", "--until", "2026-11-29T13:01+01:00") == ["early"]


@pytest.mark.parametrize("text", ["yesterday", "2026-13-01", "0001-01-01T00:00+05:00"])
def test_a_time_that_is_none_is_refused_by_name(text):
    with pytest.raises(CommandError, match=re.escape(f"{text!r} is no time")):
        exported("--since", text)


def test_a_file_is_replaced_when_it_is_whole(tmp_path, monkeypatch):
    path = tmp_path / "usage.jsonl"
    path.write_text("old")
    exported("-o", str(path))
    whole = path.read_text()
    assert len(whole.splitlines()) == 3

    def break_off(records, style):
        yield "half"
        raise RuntimeError("the database went away")

    monkeypatch.setattr(export, "lines", break_off)
    with pytest.raises(RuntimeError):
        exported("-o", str(path))
    assert path.read_text() == whole
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_that_is_not_there_is_said_in_one_line(tmp_path):
    with pytest.raises(CommandError, match="cannot write"):
        exported("-o", str(tmp_path / "no" / "usage.jsonl"))


def test_an_unknown_tenant_is_refused_and_one_that_left_is_not():
    with pytest.raises(CommandError, match=r"--tenant is 'nope'; it takes a tenant of the policy"):
        exported("--tenant", "nope")
    assert ids("--tenant", "bob") == ["bobs"]  # in no policy here, and has a record
    builders.apply_policy()
    assert exported("--tenant", "stark") == ""  # in the policy, and has none
