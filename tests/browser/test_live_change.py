"""The console of a running product, clicked through: what is changed there rules the gateway."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import Page, expect

from tests.acceptance.stack import Stack, demo_policy, stack, until


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    folder: Path = tmp_path_factory.mktemp("fairlane")
    with stack(folder, demo_policy, 1, "--profile", "demo") as running:
        yield running


@pytest.fixture(scope="module")
def admin(served: Stack) -> dict[str, Any]:
    made = served.manage("users", "create", "--username", "ada", "--role", "admin", "--json")
    account: dict[str, Any] = json.loads(made)
    return account


def ask(served: Stack, key: str) -> None:
    answer = httpx.post(
        f"{served.url}/v1/chat/completions",
        headers={"Authorization": f"Bearer {key}"},
        json={
            "model": "demo-chat",
            "max_tokens": 4,
            "messages": [{"role": "user", "content": "x"}],
        },
    )
    assert answer.status_code == 200, answer.text


def live(served: Stack, token: str) -> dict[str, Any]:
    headers = {"Authorization": f"Token {token}"}
    gateways = httpx.get(f"{served.url}/api/v1/live/", headers=headers).json()["gateways"]
    state: dict[str, Any] = gateways[0] if gateways else {}
    return state


def weight_of_acme(served: Stack, token: str) -> float | None:
    lanes = live(served, token).get("pools", {}).get("demo-chat", {}).get("lanes", {})
    acme = lanes.get("interactive-standard", {}).get("tenants", {}).get("acme")
    return acme["weight"] if acme else None


def test_a_weight_changed_on_the_page_is_audited_and_rules_the_gateway(
    served: Stack, admin: dict[str, Any], page: Page
) -> None:
    key = served.key("acme")
    ask(served, key)
    until(
        lambda: weight_of_acme(served, admin["token"]) == 4, "acme is live with its tier's weight"
    )

    page.goto(served.url)
    page.get_by_label("User name").fill("ada")
    page.get_by_label("Password").fill(admin["password"])
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("heading", name="Overview")).to_be_visible()

    page.get_by_role("link", name="Tenants", exact=True).click()
    page.get_by_role("link", name="acme", exact=True).click()
    page.get_by_role("link", name="Edit", exact=True).click()
    page.get_by_label("Weight").fill("7")
    page.get_by_label("Reason").fill("a launch this week")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_text("revision 2")).to_be_visible()

    page.get_by_role("link", name="Audit", exact=True).first.click()
    entry = page.get_by_role("row").filter(has_text="acme").filter(has_text="weight").first
    expect(entry).to_contain_text("ada")
    expect(entry).to_contain_text("7")
    expect(entry).to_contain_text("a launch this week")

    until(lambda: live(served, admin["token"])["revision"] == 2, "revision 2 is in force")
    ask(served, key)  # a key of before works on under the new policy
    until(lambda: weight_of_acme(served, admin["token"]) == 7, "the new weight is in force")
