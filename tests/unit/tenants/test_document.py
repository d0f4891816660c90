"""A policy file says what it says: defaults, and a round trip through the export."""

import re
from typing import Any

from hypothesis import given, settings

from tenants.core.document import EMPTY, canonical
from tenants.core.validation import validate
from tenants.core.yaml_text import dump, parse
from tests.unit.tenants.policies import POLICY, policies, read

CONTRACT_EXAMPLE = """\
version: 1
lanes:                                  # rank 0 is served first
  - {name: interactive-critical, rank: 0, engine_priority: 0,  reserved_share: 0.30, ceiling: 1.0, max_queue_seconds: 20}
  - {name: interactive-standard, rank: 1, engine_priority: 10, reserved_share: 0.20, ceiling: 1.0, max_queue_seconds: 60}
  - {name: async-batch,          rank: 2, engine_priority: 20, reserved_share: 0.10, ceiling: 0.9, max_queue_seconds: 3600}
tiers:
  - name: gold
    weight: 4
    lane: interactive-standard          # used when nothing else says a lane
    allowed_lanes: [interactive-critical, interactive-standard, async-batch]
    limits: {max_running: 32, max_queued: 200, max_input_tokens: 32768, max_output_tokens: 4096, requests_per_minute: 600, tokens_per_minute: 400000}
    budgets:
      - {name: burst, kind: burst, cost: 200000, refill_per_second: 4000}
      - {name: hourly, kind: sustained, cost: 5000000, period: hour, on_exhausted: reject}
    on_overload: queue                  # queue | demote | reject
    models: ["*"]                       # pools that this tier may use
pools:
  - model: demo-chat
    aliases: [gpt-4o-mini]
    endpoints: [{url: "http://127.0.0.1:9101/v1"}, {url: "http://127.0.0.1:9102/v1"}]
    capacity: {max_running: 16, max_running_tokens: 60000}
    cost: {input: 1, cached_input: 1, output: 2}
    price: {currency: USD, input_per_million: "0.20", output_per_million: "0.80"}
    tokenizer: {kind: estimate}
    api_key_env: ENGINE_KEY
    engine: vllm
    isolate_prefix_cache: true
    timeouts: {connect: 5, first_token: 120, idle: 60, total: 600}
tenants:
  - name: acme
    tier: gold
    weight: 8
    timezone: Asia/Tokyo
    enabled: true
    applications:
      - {name: support-bot, lane: interactive-critical, weight: 3}
      - {name: nightly,     lane: async-batch}
"""  # noqa: E501  -- as it stands in contract.md


def test_the_contracts_example_is_a_policy() -> None:
    document = read(CONTRACT_EXAMPLE)
    assert document.tenants[0].applications[1].lane == "async-batch"
    assert document.pools[0].timeouts.first_token == 120


def test_defaults_in_the_contracts_example_change_nothing_when_left_out() -> None:
    shorter = re.sub(
        r"\n    (timeouts|cost|capacity|tokenizer|engine|models|enabled):.*", "", CONTRACT_EXAMPLE
    )
    assert read(shorter) == read(CONTRACT_EXAMPLE)


def test_json_is_a_policy_too() -> None:
    assert read('{"version": 1, "tenants": []}') == EMPTY


def test_the_empty_policy_keeps_its_four_lists() -> None:
    assert dump(canonical(EMPTY)) == "version: 1\nlanes: []\ntiers: []\npools: []\ntenants: []\n"


def test_whole_numbers_are_written_without_a_point() -> None:
    assert canonical(read(POLICY.replace("weight: 8", "weight: 8.0"))) == canonical(read(POLICY))
    assert "weight: 8\n" in dump(canonical(read(POLICY)))


@settings(max_examples=150)
@given(policies())
def test_any_valid_policy_comes_back_from_its_export(policy: dict[str, Any]) -> None:
    document = validate(policy)
    text = dump(canonical(document))
    again = parse(text)
    assert validate(again.data, again.line) == document
    assert dump(canonical(validate(again.data))) == text
