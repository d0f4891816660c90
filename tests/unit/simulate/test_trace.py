"""Traces are read from every format that is known, and a bad one is refused where it is bad."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from metering import export
from metering.core.record import UsageRecord
from scheduling.simulate.reading import parse, read
from scheduling.simulate.trace import TraceError

OWN = "arrival,tenant,application,lane,prompt_tokens,output_tokens,prefix\n"
AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
MOONCAKE = '{{"timestamp": {}, "input_length": {}, "output_length": 5, "hash_ids": {}}}\n'


def test_own_format_has_every_field() -> None:
    found = parse(OWN + "5.5,acme,bot,batch,100,20,\n5,globex,,,7,1,\n", "own.csv").arrivals
    assert [(a.at, a.tenant, a.application, a.lane) for a in found] == [
        (0.0, "globex", "", ""),
        (0.5, "acme", "bot", "batch"),
    ]
    assert [(a.prompt_tokens, a.output_tokens) for a in found] == [(7, 1), (100, 20)]


def test_json_lines_say_the_same_as_csv() -> None:
    lines = '{"arrival": 5, "tenant": "acme", "prompt_tokens": 7, "output_tokens": 1}\n\n'
    csv = OWN + "5,acme,,,7,1,\n"
    assert parse(lines, "x").arrivals == parse(csv, "x").arrivals


def test_rows_of_one_prefix_share_as_far_as_the_shorter_goes() -> None:
    text = OWN + "0,a,,,640,1,chat\n1,a,,,320,1,chat\n2,a,,,640,1,other\n"
    long, short, other = (arrival.blocks for arrival in parse(text, "x").arrivals)
    assert len(short) == 5
    assert long[:5] == short
    assert not set(long) & set(other)


def test_prefix_tokens_say_how_much_is_shared() -> None:
    text = OWN.replace("prefix", "prefix,prefix_tokens") + "0,a,,,640,1,system,128\n"
    assert len(parse(text, "x").arrivals[0].blocks) == 2


def test_azure_rows_get_the_same_tenants_every_time() -> None:
    rows = "".join(f"2023-11-16 18:17:{i % 60:02}.9799600,100,{i + 1}\n" for i in range(300))
    first, again = parse(AZURE + rows, "azure.csv", 5), parse(AZURE + rows, "azure.csv", 5)
    counts = [sum(a.tenant == f"tenant-{k:02}" for a in first.arrivals) for k in range(1, 6)]
    assert first == again
    assert sum(counts) == 300
    assert counts[0] > 1.5 * counts[1]
    assert counts[0] > 3 * counts[4] > 0
    assert "names no tenants" in first.notes[0]


def test_a_mooncake_conversation_stays_with_one_tenant() -> None:
    text = "".join(MOONCAKE.format(1000 * i, 1500, [0, i % 9, 100 + i]) for i in range(90))
    found = parse(text, "mooncake.jsonl").arrivals
    assert found[2].at == 2.0
    assert found[2].blocks == (0, 2, 102)
    for k in range(9):
        assert len({arrival.tenant for arrival in found if arrival.blocks[1] == k}) == 1
    assert len({arrival.tenant for arrival in found}) > 2


@pytest.mark.parametrize("style", ["jsonl", "csv"])
def test_own_usage_export_is_a_trace(style: export.Format) -> None:
    began = datetime(2026, 11, 29, 12, tzinfo=UTC)
    records = [
        UsageRecord(
            request_id=f"r{i}", at=began + timedelta(seconds=i), tenant="acme", lane="batch",
            application="bot", model="demo-chat", prompt_tokens=10 + i, completion_tokens=3,
        )
        for i in range(3)
    ]  # fmt: skip
    refused = UsageRecord(
        request_id="no", at=began, tenant="acme", status=429, finish_reason="throttled"
    )
    found = parse("".join(export.lines([*records, refused], style)), "usage")
    assert [(a.at, a.prompt_tokens) for a in found.arrivals] == [(0, 10), (1, 11), (2, 12)]
    assert {(a.tenant, a.application, a.lane, a.model) for a in found.arrivals} == {
        ("acme", "bot", "batch", "demo-chat")
    }
    assert found.notes == ("1 rows left out: they never reached an engine",)


def test_a_trace_can_be_cut_and_sped_up() -> None:
    whole = parse(OWN + "".join(f"{i},a,,,1,1,\n" for i in range(10)), "x")
    cut = whole.cut(5, 2.0)
    assert [arrival.at for arrival in cut.arrivals] == [0, 0.5, 1, 1.5, 2]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (OWN + "0,a,,,1,1,\n1,a,,,many,1,\n", "line 3: prompt_tokens is 'many'; it takes a number"),
        (OWN + "0,a,,,1.5,1,\n", "line 2: prompt_tokens is '1.5'; it takes a whole number from 1"),
        (OWN + "0,a,,,0,1,\n", "line 2: prompt_tokens is '0'; it takes a whole number from 1"),
        (OWN + "nan,a,,,1,1,\n", "line 2: arrival is 'nan'; it takes a finite number"),
        (OWN + "0,a,,,1\n", "line 2: has another number of fields than its header"),
        (AZURE + "yesterday,1,1\n", "TIMESTAMP is 'yesterday'; it takes a time in ISO 8601"),
        (MOONCAKE.format(0, 1, '"x"'), "line 1: hash_ids is 'x'; it takes a list of whole numbers"),
        ('{"arrival": 1}\n', "line 1: has arrival; a trace has arrival, output_tokens"),
        ("{]\n", "line 1: not JSON"),
        ("", "no request is in it"),
        ("color,size\nred,1\n", "has color, size; a trace has"),
    ],
)
def test_what_is_wrong_is_told_with_its_line_field_and_value(text: str, says: str) -> None:
    with pytest.raises(TraceError, match=r"^trace x") as refused:
        parse(text, "x")
    assert says in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_file_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="No such file"):
        read(tmp_path / "none.csv")
