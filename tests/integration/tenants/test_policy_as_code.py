"""Policy as code: an export is a fixed point, a plan says what an apply would do, and the schema
agrees with the validation on what a policy looks like."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from jsonschema import Draft202012Validator

from tenants import selectors
from tenants.core.document import canonical
from tenants.core.schema import SAID, json_schema
from tenants.core.validation import validate
from tenants.core.yaml_text import dump, parse
from tests import builders
from tests.integration.tenants.test_commands import run
from tests.unit.tenants.policies import POLICY, policies
from tests.unit.tenants.test_document import CONTRACT_EXAMPLE

DEMO = Path(__file__).parents[3] / "fairlane/demo/policy.yaml"
stored = [pytest.mark.django_db, pytest.mark.store]
FILES = {
    "written by hand": POLICY,
    "the contract's": CONTRACT_EXAMPLE,
    "the demo's": DEMO.read_text(encoding="utf-8"),
    "the tests'": yaml.safe_dump(builders.policy()),
}


class TestOnTheStore:
    pytestmark = stored

    @pytest.fixture
    def file(self, tmp_path: Path) -> Path:
        return tmp_path / "policy.yaml"

    @pytest.mark.parametrize("text", FILES.values(), ids=FILES)
    def test_an_export_comes_back_byte_for_byte(self, file: Path, text: str) -> None:
        """Whatever a person wrote: comments, order of keys and defaults go with the first export,
        and from then on nothing moves."""
        file.write_text(f"# ours\n{text}", encoding="utf-8")
        assert run("policy", "apply", str(file)).status == 0
        run("policy", "export", str(file))
        before = file.read_bytes()
        assert run("policy", "apply", str(file)).out == "Nothing to change; revision 1 stands.\n"
        run("policy", "export", str(file))
        assert file.read_bytes() == before
        assert run("policy", "export").out.encode() == before

    def test_a_dry_run_shows_the_plan_and_changes_nothing(self, file: Path) -> None:
        file.write_text(POLICY)
        ran = run("policy", "apply", str(file), "--dry-run")
        assert (ran.status, ran.err) == (0, "")
        assert "Plan: 10 to add, 0 to change, 0 to remove.\n" in ran.out
        assert ran.out.endswith("Dry run: nothing was changed, revision 0 stands.\n")
        assert selectors.current_revision() == 0

    def test_apply_is_refused_where_another_revision_is_in_force(self, file: Path) -> None:
        file.write_text(POLICY)
        assert run("policy", "apply", str(file), "--if-revision", "0").status == 0
        file.write_text(POLICY.replace("weight: 8", "weight: 9"))
        late = run("policy", "apply", str(file), "--if-revision", "0")
        assert (late.status, late.err) == (2, "Refused: revision 1 is in force, not 0\n")
        assert run("policy", "rollback", "0", "--if-revision", "0").status == 2
        assert run("policy", "apply", str(file), "--if-revision", "1").status == 0

    def test_a_plan_marks_what_comes_goes_and_changes(self, file: Path) -> None:
        file.write_text(POLICY)
        run("policy", "apply", str(file))
        file.write_text(
            POLICY.replace("weight: 8", "weight: 9").replace("- {name: bricks", "- {name: stones")
        )
        ran = run("policy", "diff", str(file))
        lines = ran.out.splitlines()
        assert ran.status == 1
        assert lines[:2] == ["  ~ tenant acme", "      weight: 8 → 9"]
        assert lines[2:4] == ["  - tenant bricks", "      tier: free"]
        assert lines[4:6] == ["  + tenant stones", "      tier: free"]
        assert lines[-1] == "Plan: 1 to add, 1 to change, 1 to remove."
        assert "\033" not in ran.out

    def test_a_plan_warns_of_what_runs_now(self, file: Path) -> None:
        file.write_text(POLICY)
        run("policy", "apply", str(file))
        file.write_text(POLICY.replace("reserved_share: 0.3", "reserved_share: 0.75"))
        ran = run("policy", "diff", str(file))
        assert "  ! Reserved shares add up to 95%; 5% is left to go by rank.\n" in ran.out
        told = run("policy", "diff", str(file), "--json").json["warnings"]
        assert told[0]["level"] == "warning"

    def test_colour_is_for_terminals_or_for_who_asks(
        self, file: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        file.write_text(POLICY)
        assert "\033[32m  + tenant acme\033[0m\n" in run("policy", "diff", str(file), "--color").out
        monkeypatch.setenv("NO_COLOR", "1")
        assert "\033" not in run("policy", "diff", str(file)).out

    def test_the_schema_is_printed(self) -> None:
        assert run("policy", "schema").json == json_schema()


VALIDATOR = Draft202012Validator(json_schema())


def fits(data: Any) -> bool:
    return bool(VALIDATOR.is_valid(data))


def test_the_schema_is_one() -> None:
    Draft202012Validator.check_schema(json_schema())
    assert len(SAID) > 25


@pytest.mark.parametrize("text", FILES.values(), ids=FILES)
def test_policies_that_are_applied_fit_the_schema(text: str) -> None:
    data = parse(text).data
    assert fits(data), list(VALIDATOR.iter_errors(data))
    assert fits(canonical(validate(data)))


@given(policies())
@settings(max_examples=60)
def test_every_sound_policy_fits_the_schema_and_exports_to_itself(data: dict[str, Any]) -> None:
    assert fits(data)
    text = dump(canonical(validate(data)))
    assert dump(canonical(validate(parse(text).data))) == text


SHAPES = [
    ("weight: 4", 'weight: "4"'),
    ("weight: 4", "weight: true"),
    ("weight: 4", "weight: -1"),
    ("weight: 4", "wieght: 4"),
    ("weight: 4", "weight:"),
    ("version: 1", "version: 2"),
    ("version: 1\n", ""),
    ("max_running: 32", "max_running: 3.5"),
    ("max_running: 32", "max_run: 3"),
    ("standard, critical, batch", ""),
    ("name: bricks", "name: Bricks"),
    ("name: bricks, ", ""),
    ("rank: 1", "rank: -1"),
    ("reserved_share: 0.2", "reserved_share: 1.5"),
    ("ceiling: 0.9", "ceiling: 0"),
    ("period: hour", "period: year"),
    ("period: hour", "period: hour, refill_per_second: 3"),
    (", period: hour", ""),
    (", refill_per_second: 4000", ""),
    ("kind: burst,", "kind: burst, period: hour,"),
    ("kind: burst,", "kind: burst, on_exhausted: demote,"),
    ("http://127.0.0.1:9101/v1", "ftp://127.0.0.1/v1"),
    ("currency: USD", "currency: dollars"),
    ('"0.20"', "0.20"),
    ("model: demo-chat", "model: demo-chat\n    capacity: automatic"),
    ("model: demo-chat", "model: demo-chat\n    capacity: {max_running: 0}"),
    ("model: demo-chat", "model: demo-chat\n    tokenizer: {kind: file}"),
    ("model: demo-chat", "model: demo-chat\n    tokenizer: {kind: engine, path: x.json}"),
    ("model: demo-chat", "model: demo-chat\n    engine: tgi"),
]


@pytest.mark.parametrize(("right", "wrong"), SHAPES)
def test_what_is_refused_by_its_shape_does_not_fit(right: str, wrong: str) -> None:
    assert right in POLICY
    assert not fits(parse(POLICY.replace(right, wrong, 1)).data)
