"""Simon Willison's `llm`, told of the gateway in its `extra-openai-models.yaml`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from tests.acceptance.gateway.rig import Rig
from tests.clients.install import program
from tests.clients.rig import Cast, cast


class Llm:
    def __init__(self, caller: Cast, home: Path) -> None:
        self._caller, self._home = caller, home
        served = {"model_name": "chat", "api_base": f"{caller.url}/v1", "api_key_name": "fairlane"}
        chat = {**served, "model_id": "fairlane", "supports_tools": True, "supports_schema": True}
        text = {**served, "model_id": "fairlane-text", "completion": True}
        (home / "extra-openai-models.yaml").write_text(yaml.safe_dump([chat, text]))
        self("keys", "set", "fairlane", "--value", caller.keys["open"])

    def __call__(self, *arguments: str) -> str:
        return self._caller.run(
            program("llm", "llm"), *arguments, LLM_USER_PATH=str(self._home)
        ).strip()

    def key(self, tenant: str) -> tuple[str, str]:
        return ("--key", self._caller.keys.get(tenant, tenant))


@pytest.fixture(scope="module")
def llm(product: Rig, tmp_path_factory: pytest.TempPathFactory) -> Llm:
    return Llm(cast(product, "llm"), tmp_path_factory.mktemp("llm"))


@pytest.mark.parametrize("more", [(), ("--no-stream",), ("--async",)])
def test_a_prompt_is_answered(llm: Llm, more: tuple[str, ...]) -> None:
    assert 1 <= len(llm("-m", "fairlane", "Hello", "-o", "max_tokens", "5", *more).split()) <= 5


def test_a_conversation_goes_on(llm: Llm) -> None:
    llm("-m", "fairlane", "Hello", "-o", "max_tokens", "5")
    assert llm("-c", "And then?", "-o", "max_tokens", "5")
    [*_, last] = json.loads(llm("logs", "--json", "-n", "2"))
    assert last["input_tokens"] > 0


def test_a_schema_is_kept(llm: Llm) -> None:
    said = llm("-m", "fairlane", "--schema", "name, people int", "A town")
    assert json.loads(said) == {"name": "sea", "people": 1}


def test_a_tool_is_called_and_its_result_answered(llm: Llm) -> None:
    assert llm("-m", "fairlane", "-T", "llm_version", "Which version is this?")
    [*_, last] = json.loads(llm("logs", "--json", "-n", "1"))
    assert last["tool_results"][0]["name"] == "llm_version"


def test_a_text_is_completed(llm: Llm) -> None:
    assert llm("-m", "fairlane-text", "Once upon", "-o", "max_tokens", "5")


@pytest.mark.parametrize(
    ("tenant", "said"), [("spent", "budget"), ("closed", "max_running"), ("fl_no_x", "API key")]
)
def test_a_refusal_says_why(llm: Llm, tenant: str, said: str) -> None:
    with pytest.raises(AssertionError, match=said):
        llm("-m", "fairlane", "Hello", *llm.key(tenant))
