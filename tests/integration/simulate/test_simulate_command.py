"""`manage.py simulate` from outside: policy and trace in, figures out; bad input is one line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command

POLICY = """
version: 1
lanes:
  - {name: fast, rank: 0, reserved_share: 0.2, max_queue_seconds: 3000}
  - {name: slow, rank: 1, ceiling: 0.5, max_queue_seconds: 3000}
tiers:
  - {name: gold, weight: 3, lane: fast, allowed_lanes: [fast, slow]}
  - {name: bronze, weight: 1, lane: slow}
pools:
  - model: chat
    aliases: [gpt]
    endpoints: [{url: "http://127.0.0.1:1/v1"}, {url: "http://127.0.0.1:2/v1"}]
    capacity: {max_running: 4, max_running_tokens: 8000}
tenants:
  - {name: acme, tier: gold, applications: [{name: nightly, lane: slow}]}
  - {name: closed, tier: gold, enabled: false}
"""
HEAD = "arrival,tenant,application,lane,model,prompt_tokens,output_tokens\n"


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    path = tmp_path / "policy.yaml"
    path.write_text(POLICY)
    return path


@pytest.fixture
def trace(tmp_path: Path) -> Callable[[str], Path]:
    def write(rows: str) -> Path:
        path = tmp_path / "trace.csv"
        path.write_text(HEAD + rows)
        return path

    return write


def simulated(*arguments: object) -> dict[str, Any]:
    out = StringIO()
    call_command("simulate", *map(str, arguments), "--json", stdout=out)
    told: dict[str, Any] = json.loads(out.getvalue())
    return told


def refused(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    with pytest.raises(SystemExit) as ended:
        call_command("simulate", *map(str, arguments))
    assert ended.value.code == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    return captured.err


def test_from_outside_it_prints_a_table_and_writes_a_report(policy: Path, tmp_path: Path) -> None:
    report = tmp_path / "report.html"
    ran = subprocess.run(
        [
            *(sys.executable, "manage.py", "simulate", "--policy", policy, "--html", report),
            *("--workload", "two-overloaded", "--engine", "7b-a10g", "--limit", "60"),
            *("--scheduler", "fairlane,fcfs"),
        ],
        env={**os.environ, "SECRET_KEY": "x"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "two-overloaded: 60 requests" in ran.stdout
    assert "note: 2 tenants are not in the policy and ran as tier bronze: " in ran.stdout
    lines = [line.split() for line in ran.stdout.splitlines()]
    assert [line[1] for line in lines if line[:1] in (["fairlane"], ["fcfs"])] == ["60", "60"]
    assert ran.stderr == ""
    assert "<h1>two-overloaded</h1>" in report.read_text()


def test_from_outside_bad_input_is_one_line_and_exit_2(tmp_path: Path) -> None:
    bad = tmp_path / "bad.csv"
    bad.write_text(HEAD + "0,acme,,,,ten,1\n")
    ran = subprocess.run(
        [sys.executable, "manage.py", "simulate", "--trace", bad],
        env={**os.environ, "SECRET_KEY": "x"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 2
    assert ran.stdout == ""
    assert ran.stderr == "trace bad.csv, line 2: prompt_tokens is 'ten'; it takes a number\n"


def test_arrivals_go_where_the_policy_sends_them(
    policy: Path, trace: Callable[[str], Path]
) -> None:
    rows = (
        "0,acme,,,chat,10,5\n"  # the tier's lane
        "1,acme,nightly,,gpt,10,5\n"  # the application's lane, an alias
        "2,acme,,slow,chat,10,5\n"  # a lane it may ask for
        "3,globex,,fast,chat,10,5\n"  # a stranger, and a lane it may not
        "4,closed,,,chat,10,5\n"  # suspended
        "5,acme,,,other,10,5\n"  # no such model
    )
    told = simulated("--policy", policy, "--trace", trace(rows))
    assert told["results"][0]["ends"] == {"served": 5}
    assert told["notes"] == [
        "1 tenants are not in the policy and ran as tier bronze: globex",
        "1 requests ran in their tenant's lane: theirs is not allowed",
        "1 requests left out: the tenant is suspended",
        "1 requests ran on chat: the policy lacks their model",
    ]
    weights = {tenant["name"]: tenant["weight"] for tenant in told["results"][0]["tenants"]}
    assert weights == {"acme": 3, "globex": 1}


def test_strangers_can_be_of_any_tier(policy: Path, trace: Callable[[str], Path]) -> None:
    told = simulated("--policy", policy, "--trace", trace("0,odd name!,,,,5,5\n"), "--tier", "gold")
    assert told["results"][0]["tenants"][0]["weight"] == 3


def test_a_ceiling_keeps_room_for_the_lane_above(
    policy: Path, trace: Callable[[str], Path]
) -> None:
    """Half of the slots stay free of long answers, so that a short question finds one at once."""
    slow = "".join(f"{k / 100},acme,nightly,,,100,400\n" for k in range(60))
    rows = trace(slow + "".join(f"{5 + k},acme,,,,100,20\n" for k in range(10)))
    queue_s = {}
    for ceiling in ("0.5", "1.0"):
        policy.write_text(POLICY.replace("ceiling: 0.5", f"ceiling: {ceiling}"))
        lanes = simulated("--policy", policy, "--trace", rows)["results"][0]["lanes"]
        assert [lane["name"] for lane in lanes] == ["fast", "slow"]
        queue_s[ceiling] = lanes[0]["queue_s"]["p95"]
    assert queue_s["0.5"] == 0
    assert queue_s["1.0"] > 1


def test_capacity_auto_is_as_much_as_the_engine_holds(
    policy: Path, trace: Callable[[str], Path]
) -> None:
    rows = "".join("0,acme,,,,10,200\n" for _ in range(40))
    policy.write_text(
        POLICY.replace("capacity: {max_running: 4, max_running_tokens: 8000}", "capacity: auto")
    )
    told = simulated("--policy", policy, "--trace", trace(rows), "--engine", "demo")
    assert max(told["results"][0]["series"]["running"]) == 2 * 16


def test_compare_runs_every_scheduler(trace: Callable[[str], Path]) -> None:
    rows = "".join(f"{k / 10},t{k % 3},,,,50,20\n" for k in range(60))
    told = simulated("--trace", trace(rows), "--compare")
    names = [result["policy"] for result in told["results"]]
    assert names[0] == "fairlane"
    assert {"fcfs", "rpm-5", "lcf", "round-robin", "vtc", "vtc-oracle", "dlpm", "fairserve"} <= {
        *names
    }
    assert told == simulated("--trace", trace(rows), "--compare")


def test_scale_brings_requests_faster(trace: Callable[[str], Path]) -> None:
    rows = "".join(f"{k},acme,,,,50,20\n" for k in range(30))
    told = simulated("--trace", trace(rows), "--scale", "10", "--limit", "20")
    assert told["results"][0]["requests"] == 20
    assert told["results"][0]["offered_s"] == pytest.approx(1.9)


def test_bad_input_says_what_is_wrong(
    policy: Path, trace: Callable[[str], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good = trace("0,acme,,,,5,5\n")
    assert "none.csv: No such file" in refused(capsys, "--trace", tmp_path / "none.csv")
    assert "none.yaml" in refused(capsys, "--trace", good, "--policy", tmp_path / "none.yaml")
    assert "neither a file nor one of" in refused(capsys, "--trace", good, "--engine", "h9000")
    told = refused(capsys, "--trace", good, "--policy", policy, "--html", tmp_path / "no" / "r")
    assert "No such file" in told
    policy.write_text(POLICY.replace("rank: 1", "rank: x"))
    told = refused(capsys, "--trace", good, "--policy", policy)
    assert "policy.yaml: line 5: lanes[slow].rank" in told
    policy.write_text(POLICY)
    only = trace("0,closed,,,,5,5\n")
    assert "leaves no request" in refused(capsys, "--trace", only, "--policy", policy)
    strange = trace("0,who,,,,5,5\n")
    told = refused(capsys, "--trace", strange, "--policy", policy, "--tier", "iron")
    assert "tier 'iron' is not in the policy; it has gold, bronze" in told
