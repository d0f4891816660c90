"""Whatever is wrong with a policy is told with its line, its field, its value, what is allowed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenants.core.issue import Invalid
from tenants.core.validation import validate, validate_budgets
from tests.unit.tenants.policies import POLICY, issues, read

BAD = [
    # what stands in the policy, what a slip makes of it, and what is said about it
    (
        "weight: 4",
        'weight: "4"',
        "line 8: tiers[gold].weight: weight is '4': must be a valid number",
    ),
    (
        "weight: 4",
        "weight: true",
        "line 8: tiers[gold].weight: weight is true: must be a valid num",
    ),
    ("weight: 4", "weight: -1", "line 8: tiers[gold].weight: weight is -1: must be greater than"),
    ("weight: 4", "weight: 0", "must be greater than or equal to 0.001"),
    ("weight: 4", "weight: .nan", "weight is nan: must be a finite number"),
    ("weight: 4", "weight: .inf", "weight is inf: must be a finite number"),
    ("weight: 4", "weight: -.inf", "weight is -inf: must be a finite number"),
    (
        "weight: 4",
        "wieght: 4",
        "line 8: tiers[gold].wieght: unknown key 'wieght'; allowed: allowed",
    ),
    ("weight: 4", "weight:", "weight is null: must be a valid number"),
    ("max_running: 32", "max_running: 3.5", "limits.max_running: max_running is 3.5: must be a va"),
    ("max_running: 32", "max_run: 3", "unknown key 'max_run'; allowed: max_input_tokens, max_outp"),
    ("max_running: 32", "max_running: -1", "max_running is -1: must be greater than or equal to 0"),
    (
        "lane: standard\n",
        "lane: fast\n",
        "line 9: tiers[gold].lane: there is no lane 'fast'; known",
    ),
    ("standard, critical, batch", "critical", "lane 'standard' is not among the allowed_lanes: cr"),
    ("standard, critical, batch", "standard, x", "line 10: tiers[gold].allowed_lanes[1]: there is"),
    ("standard, critical, batch", "standard, standard", "allowed lane 'standard' is given twice"),
    ("standard, critical, batch", "", "allowed_lanes is []: must have at least 1 item"),
    ("name: free", "name: gold", "line 15: tiers[gold].name: tier name 'gold' is given twice"),
    ("tier: free", "tier: fre", "line 31: tenants[bricks].tier: there is no tier 'fre'; known: fr"),
    ("name: bricks", "name: acme", "tenant name 'acme' is given twice; it must be unique"),
    (
        "name: bricks",
        "name: Bricks",
        "name is 'Bricks': it takes 1 to 63 lower-case letters, digits, dots",
    ),
    ("name: bricks", "name: 'bricks\\n'", "it takes 1 to 63 lower-case"),
    ("name: bricks", "name: 7", "name is 7: must be a valid string"),
    ("name: bricks, ", "", "line 31: tenants[1].name: name is missing"),
    (
        "rank: 1",
        "rank: 0",
        "line 4: lanes[standard].rank: lane rank 0 is given twice, "
        "by lane 'critical' and lane 'standard'; it must be unique",
    ),
    ("rank: 1", "rank: -1", "rank is -1: must be greater than or equal to 0"),
    ("name: standard", "name: batch", "lane name 'batch' is given twice"),
    ("reserved_share: 0.2", "reserved_share: 0.8", "reserved_share of all lanes adds up to 1.1;"),
    (
        "reserved_share: 0.2",
        "reserved_share: 1.5",
        "reserved_share is 1.5: must be less than or eq",
    ),
    ("ceiling: 0.9", "ceiling: 0", "ceiling is 0: must be greater than 0"),
    (", refill_per_second: 4000", "", "line 13: tiers[gold].budgets[burst]: a burst budget needs"),
    (
        "refill_per_second: 4000",
        "period: hour, refill_per_second: 1",
        "belong to sustained budgets, not",
    ),
    (", period: hour", "", "line 14: tiers[gold].budgets[hourly]: a sustained budget needs period"),
    ("period: hour", "period: hour, refill_per_second: 1", "refill_per_second belongs to burst"),
    (
        "period: hour",
        "period: year",
        "period is 'year': it takes minute, hour, day, week, month, or days from 1d to 366d",
    ),
    ("period: hour", "period: 0d", "period is '0d': it takes minute,"),
    ("period: hour", "period: 367d", "period is '367d': it takes minute,"),
    ("period: hour", "period: 90", "period is 90: must be a valid string"),
    (
        "name: hourly, kind: sustained, cost: 5",
        "name: burst, kind: sustained, cost: 5",
        "line 14: tiers[gold].budgets[burst].name: budget name 'burst' is given twice",
    ),
    (
        "aliases: [gpt-4o-mini]",
        "aliases: [demo-chat]",
        "model or alias 'demo-chat' is given twice, by pool 'demo-chat'; it must be unique",
    ),
    (":9102", ":9101", "endpoint url 'http://127.0.0.1:9101/v1' is given twice"),
    ("endpoints: [", "endpoints: []\n    x: [", "must have at least 1 item"),
    ('"0.20"', "0.20", "input_per_million is 0.2: must be a valid string"),
    ('"0.20"', '"-0.20"', "input_per_million is '-0.20': it takes text such as '0.20'"),
    ('"0.20"', '"NaN"', "input_per_million is 'NaN': it takes text such as"),
    ("currency: USD", "currency: dollars", "currency is 'dollars': it takes three capital letters"),
    ("aliases:", "capacity: automatic\n    aliases:", "capacity is 'automatic': must be 'auto'"),
    ("aliases:", "capacity: {max_running: 0}\n    aliases:", "max_running is 0: must be greater"),
    (
        "aliases:",
        "capacity: {running: 1}\n    aliases:",
        "allowed: max_running, max_running_tokens",
    ),
    ("aliases:", "cost: {input: 0, output: 0}\n    aliases:", "input and output are both 0"),
    ("aliases:", "tokenizer: {kind: file}\n    aliases:", "path is for kind file, which needs it"),
    ("aliases:", "tokenizer: {path: x}\n    aliases:", "path is for kind file"),
    ("aliases:", "engine: tgi\n    aliases:", "engine is 'tgi': must be 'vllm', 'vllm-body'"),
    ("aliases:", "api_key_env: SECRET_KEY\n    aliases:", "Fairlane's own variables are never"),
    ("aliases:", "api_key_env: 'sk-123'\n    aliases:", "it takes the name of an environment var"),
    (
        "tier: free",
        "tier: free, models: [demo]",
        "models[0]: there is no pool 'demo'; known: demo-c",
    ),
    (
        "tier: gold",
        "tier: gold\n    allowed_lanes: [critical, batch]",
        "lane 'standard' is not among the allowed_lanes: critical, batch",
    ),
    ("Asia/Tokyo", "Asia/Tokio", "timezone is 'Asia/Tokio': it takes a time zone's name"),
    ("Asia/Tokyo", "localtime", "timezone is 'localtime': it takes a time zone's name"),
    ("Asia/Tokyo", "right/UTC", "timezone is 'right/UTC': it takes a time zone's name"),
    ("version: 1", "version: 1.0", "version is 1.0: must be 1"),
    ("version: 1", "version: true", "version is true: must be 1"),
    ("name: bricks", 'name: "a\\n\\u202eb"', r"line 31: tenants[a\n\u202eb].name: name is 'a\n"),
    ("Asia/Tokyo", "../../etc/passwd", "it takes a time zone's name"),
    (
        "lane: critical, weight: 3",
        "lane: urgent",
        "line 29: tenants[acme].applications[bot].lane: ",
    ),
    ("name: nightly", "name: bot", "application name 'bot' is given twice"),
    ("version: 1", "version: 2", "line 1: version: version is 2: must be 1"),
    ("version: 1\n", "", "version is missing"),
    ("tenants:\n", "tenants:\n  - 5\n", "tenants[0]: tenants is 5: must be a mapping"),
    (
        "tenants:\n",
        "tenant: []\ntenants:\n",
        "unknown key 'tenant'; allowed: lanes, pools, tenants",
    ),
]


@pytest.mark.parametrize(("good", "bad", "said"), BAD)
def test_a_slip_is_told_where_it_stands(good: str, bad: str, said: str) -> None:
    assert good in POLICY
    told = issues(POLICY.replace(good, bad, 1))
    assert any(said in issue for issue in told), told


def test_the_policy_itself_has_no_issue() -> None:
    assert issues(POLICY) == []


def test_all_slips_are_told_at_once_and_none_that_only_follows() -> None:
    text = POLICY.replace("weight: 4", "weight: x").replace("tier: free", "tier: fre")
    text = text.replace("rank: 2", "rank: 1").replace("lane: batch, budgets", "lan: batch, budgets")
    assert [issue.split(":")[0] for issue in issues(text)] == [
        "line 5", "line 8", "line 30", "line 31"
    ]  # fmt: skip


def test_an_application_may_only_use_a_lane_of_its_tenant() -> None:
    text = POLICY.replace("tier: free}", "tier: free, applications: [{name: a, lane: critical}]}")
    (issue,) = issues(text)
    assert "tenants[bricks].applications[a].lane: lane 'critical' is not among" in issue


def test_shares_that_add_up_to_one_but_for_rounding_are_fine() -> None:
    lanes = [{"name": f"l{i}", "rank": i, "reserved_share": 0.1} for i in range(10)]
    assert len(validate({"version": 1, "lanes": lanes}).lanes) == 10


@pytest.mark.parametrize("data", [None, [], "version: 1", 7, True])
def test_what_is_no_mapping_is_no_policy(data: object) -> None:
    with pytest.raises(Invalid, match="a policy is a mapping"):
        validate(data)


def test_plain_values_have_no_lines_but_paths() -> None:
    with pytest.raises(Invalid) as refused:
        validate({"version": 1, "lanes": [{"name": "a", "rank": "0"}]})
    (issue,) = refused.value.issues
    assert (issue.path, issue.line, issue.value) == ("lanes[a].rank", None, "0")
    assert issue.loc == ("lanes", 0, "rank")


def test_a_long_value_is_cut_in_the_message() -> None:
    (issue,) = issues(POLICY.replace("tier: free", f"tier: free, timezone: {'x' * 5000}"))
    assert len(issue) < 300


def test_budgets_of_a_key_are_checked_alike() -> None:
    good = {"name": "a", "kind": "burst", "cost": 1, "refill_per_second": 1}
    assert [part.name for part in validate_budgets([good])] == ["a"]
    with pytest.raises(Invalid, match="unknown key 'cots'; allowed: cost, kind, name"):
        validate_budgets([{**good, "cots": 1}])
    with pytest.raises(Invalid, match=r"budgets\[a\].*given twice"):
        validate_budgets([good, good])


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["version", "lanes", "tiers", "pools", "tenants", "name", "model", "lane"]
            )
            | st.text(max_size=5),
            inner,
            max_size=5,
        )
    ),
    max_leaves=20,
)


def reasons(data: object) -> list[str] | None:
    """None for a policy, else what is said against it."""
    try:
        validate(data)
    except Invalid as refused:
        return [issue.message for issue in refused.issues]
    return None


def test_a_key_that_looks_like_a_step_of_ours_is_named_like_any_other() -> None:
    for key in ("<", "<mapping>", "capacity"):
        assert any(f"unknown key '{key}'" in said for said in reasons({key: None}) or [])
    capacity = {"<mapping>": {"<mapping>": 1}}
    said = reasons({"version": 1, "pools": [{"model": "m", "capacity": capacity}]}) or []
    assert any(line.startswith("unknown key '<mapping>'; allowed: max_running") for line in said)


@given(json_values)
def test_any_value_is_a_policy_or_is_refused_with_reasons(data: object) -> None:
    said = reasons(data)
    assert said is None or (said and all(said))


@given(st.integers(0, len(POLICY)), st.text(max_size=4))
def test_any_slip_of_the_hand_is_a_policy_or_is_refused_with_reasons(at: int, put: str) -> None:
    text = POLICY[:at] + put + POLICY[at + 3 :]
    said = issues(text)
    assert said or read(text)
