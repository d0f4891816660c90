"""The pages say what the code says: each setting, metric, error, role, link and command."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.core.management import get_commands, load_command_class

from fairlane.environment import ROOT
from gateway import metrics
from gateway.dialects import DIALECTS
from gateway.errors import ANSWERS, Outcome
from tenants.core import document
from tenants.core.permissions import ROLES, TABLE

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
READERS = {
    *(
        "choice",
        "flag",
        "number",
        "url",
        "redis_url",
        "folder",
        "secret",
        "database",
        "str",
        "list",
    ),
    *("needed", "networks", "hosts", "origins"),
}


def page(name: str) -> str:
    return (ROOT / "docs" / name).read_text()


def rows(text: str) -> list[list[str]]:
    """Every table's rows, cell by cell."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def settings_read() -> set[str]:
    """The names that settings are read by: the first argument of a reader, where it is a text."""
    found = set()
    for file in ("environment.py", "settings.py", "signing_in.py", "telemetry.py"):
        for node in ast.walk(ast.parse((ROOT / "fairlane" / file).read_text())):
            if not isinstance(node, ast.Call) or not node.args:
                continue
            name = node.func.attr if isinstance(node.func, ast.Attribute) else ""
            first = node.args[0]
            if name in READERS and isinstance(first, ast.Constant):
                found.add(str(first.value))
    return found


def test_every_setting_is_in_the_operators_table_and_no_other() -> None:
    told = {row[0].strip("`") for row in rows(page("operations.md")) if row[0].isupper()}
    assert settings_read() == told
    assert len(told) > 8


def test_every_metric_is_described_with_its_labels_and_no_other() -> None:
    told = {
        row[0].strip("`"): row[1] for row in rows(page("operations.md")) if "`fairlane_" in row[0]
    }
    shown = {}
    for metric in metrics.registry.collect():
        name = f"{metric.name}_total" if metric.type == "counter" else metric.name
        family = metrics.registry._names_to_collectors[name]
        shown[name] = ", ".join(family._labelnames) or "–"  # type: ignore[attr-defined]
    assert told == shown


def test_every_error_is_told_with_its_status() -> None:
    text = page("gateway.md")
    told = {row[1].strip("`"): row[0] for row in rows(text) if row[0].isdigit()}
    assert told == {o.value: str(ANSWERS[o].status) for o in Outcome if o is not Outcome.OK}
    assert "`ok`" in text


def test_every_kind_of_engine_is_told_as_it_is_spoken_to() -> None:
    told = {row[0].strip("`"): row for row in rows(page("gateway.md"))}
    for kind, dialect in DIALECTS.items():
        _, priority, salt, running, dropped = told[kind]
        assert (salt == "yes", running == "yes") == (dialect.cache_salt, dialect.running_usage)
        assert all(f"`{name}`" in dropped for name in dialect.dropped)
        assert (priority == "none") == (dialect.priority == "none" and not dialect.flow_headers)
        assert ("higher first" in priority) == (dialect.priority_sign == -1)


def test_the_table_of_roles_is_the_table_that_is_enforced() -> None:
    cells = rows(page("tenants.md"))
    start = next(i for i, row in enumerate(cells) if row[0] == "action")
    assert cells[start][1:] == [f"`{role}`" for role in ROLES]
    told = {row[0].strip("`"): row[1:] for row in cells[start + 2 :]}
    assert told == {
        action: ["yes" if role in who else "–" for role in ROLES] for action, who in TABLE.items()
    }


@pytest.mark.parametrize("part", ["Lane", "Tier", "Tenant", "Application", "Budget", "Pool"])
def test_every_key_of_the_policy_file_is_explained(part: str) -> None:
    text = page("tenants.md")
    fields = getattr(document, part).model_fields
    assert [name for name in fields if f"`{name}`" not in text] == []


@pytest.mark.parametrize(
    "part", ["Limits", "Endpoint", "Capacity", "Cost", "Price", "Tokenizer", "Timeouts"]
)
def test_every_key_inside_one_is_named(part: str) -> None:
    text = page("tenants.md")
    fields = getattr(document, part).model_fields
    assert [name for name in fields if f"`{name}`" not in text] == []


def test_the_defaults_that_are_told_are_those_in_force() -> None:
    told = {row[0]: row[1] for row in rows(page("tenants.md")) if len(row) == 3}
    for part, name in (
        (document.Lane, "reserved_share"),
        (document.Lane, "ceiling"),
        (document.Lane, "max_queue_seconds"),
        (document.Tier, "weight"),
        (document.Tier, "on_overload"),
        (document.Budget, "on_exhausted"),
        (document.Pool, "engine"),
        (document.Pool, "locality_quantum"),
    ):
        default = part.model_fields[name].default
        shown = f"`{default}`" if isinstance(default, str) else f"{default:g}"
        assert told[f"`{name}`"] == shown
    for name, values in (
        ("capacity", document.Capacity()),
        ("cost", document.Cost()),
        ("timeouts", document.Timeouts()),
    ):
        shown = ", ".join(f"{value:.15g}" for value in values.model_dump().values())
        assert told[f"`{name}`"] == shown


def test_every_case_is_told_once_and_every_test_that_holds_one_exists() -> None:
    told = [row for row in rows(page("cases.md")) if re.fullmatch(r"[DR]\d\d", row[0])]
    cases = [f"D{n:02}" for n in range(1, 21)] + [f"R{n:02}" for n in range(1, 50)]
    assert [row[0] for row in told] == cases
    assert [row[0] for row in told if not named_tests(row[2])] == []
    named = [name for row in told for name in named_tests(row[2])]
    assert [name for name in named if not exists(name)] == []


def test_each_of_the_twelve_questions_has_tests_that_exist() -> None:
    told = [row for row in rows(page("readiness.md")) if row[0].isdigit()]
    assert [int(row[0]) for row in told] == list(range(1, 13))
    for row in told:
        named = named_tests(row[3])
        assert named
        assert [name for name in named if not exists(name)] == []


def named_tests(cell: str) -> list[str]:
    return re.findall(r"`([^`]+\.py[^`]*)`", cell)


def exists(name: str) -> bool:
    """`name`: a file under `tests/`, `::` and the name of a test."""
    file, _, test = name.partition("::")
    return f"def {test}" in (ROOT / "tests" / file).read_text()


# --- links and commands -------------------------------------------------------------------------


def links(file: Path) -> Iterator[str]:
    for target in re.findall(r"\]\(([^)\s]+)\)", file.read_text()):
        if "://" not in target:
            yield target


@pytest.mark.parametrize("file", PAGES, ids=lambda file: file.name)
def test_every_relative_link_leads_somewhere(file: Path) -> None:
    for target in links(file):
        path, _, anchor = target.partition("#")
        found = (file.parent / path).resolve() if path else file
        assert found.exists(), target
        if anchor:
            assert anchor in anchors(found), target


def anchors(file: Path) -> set[str]:
    heads = re.findall(r"^#+ (.+)$", file.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", head.lower()).replace(" ", "-") for head in heads}


def commands_named() -> set[tuple[str, str | None]]:
    """`manage.py NAME ACTION`, wherever a page says it; the action where there is one."""
    found = set()
    for file in PAGES:
        for name, rest in re.findall(r"manage\.py (\w+)((?: [a-z\\|]+)?)", file.read_text()):
            for action in rest.strip().replace("\\", "").split("|"):
                found.add((name, action or None))
    return found


def test_every_command_that_a_page_names_exists() -> None:
    known = get_commands()
    named = commands_named()
    assert {name for name, _ in named} <= known.keys()
    assert len(named) > 10
    for name, action in named:
        actions = getattr(load_command_class(known[name], name), "actions", None)
        if action is not None and actions is not None:
            assert action in actions, f"{name} {action}"


def test_every_command_of_ours_is_in_the_readme() -> None:
    ours = {name for name, app in get_commands().items() if not app.startswith("django")}
    ours -= {"spectacular"}
    told = {name for name, _ in commands_named()}
    apps = {"fairlane", "tenants", "metering", "scheduling", "gateway"}
    assert {name for name in ours if get_commands()[name] in apps} <= told


def test_every_target_of_make_that_a_page_names_exists() -> None:
    targets = set(re.findall(r"^(\w[\w-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for file in PAGES:
        named = set(re.findall(r"(?:`|^|[0-9] )make (\w+)", file.read_text(), re.MULTILINE))
        assert named <= targets
