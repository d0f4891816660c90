"""The console of a running product, clicked through: what is changed there rules the gateway."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import Page, expect

from tests.acceptance.stack import Stack, demo_policy, stack, until
from tests.browser.pictures import picture


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


def ask(served: Stack, key: str, tokens: int = 4) -> int:
    answer = httpx.post(
        f"{served.url}/v1/chat/completions",
        headers={"Authorization": f"Bearer {key}"},
        json={
            "model": "demo-chat",
            "max_tokens": tokens,
            "messages": [{"role": "user", "content": "x"}],
        },
        timeout=60,
    )
    return answer.status_code


@contextmanager
def traffic(served: Stack, callers: dict[str, int]) -> Iterator[None]:
    """So many callers of each key at once, each asking again and again until the block ends. One
    more of each listens to a long answer: no moment finds its tenant between two calls."""
    stop = threading.Event()

    def call(key: str) -> None:
        while not stop.is_set():
            ask(served, key, tokens=120)

    def listen(key: str) -> None:
        while not stop.is_set():
            with httpx.stream(
                "POST",
                f"{served.url}/v1/completions",
                headers={"Authorization": f"Bearer {key}"},
                json={"model": "demo-chat", "prompt": "x", "max_tokens": 2000, "stream": True},
                timeout=60,
            ) as answer:
                for _ in answer.iter_bytes():
                    if stop.is_set():
                        break

    threads = [
        threading.Thread(target=call, args=(key,))
        for key, many in callers.items()
        for _ in range(many)
    ]
    threads += [threading.Thread(target=listen, args=(key,)) for key in callers]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def live(served: Stack, token: str) -> dict[str, Any]:
    headers = {"Authorization": f"Token {token}"}
    answer = httpx.get(f"{served.url}/api/v1/live/", headers=headers, timeout=60)
    gateways = answer.json()["gateways"]
    state: dict[str, Any] = gateways[0] if gateways else {}
    return state


def weight_of_acme(served: Stack, token: str) -> float | None:
    lanes = live(served, token).get("pools", {}).get("demo-chat", {}).get("lanes", {})
    acme = lanes.get("interactive-standard", {}).get("tenants", {}).get("acme")
    return acme["weight"] if acme else None


def foretold(page: Page, share: str) -> bool:
    """A preview tells of the moment at which it was made: on a busy machine all of the other
    tenant's callers may have been between two calls just then, and it is made again."""
    page.get_by_role("button", name="Preview").click()
    expect(page.get_by_role("region", name="Changes")).to_contain_text("from tier gold")
    page.wait_for_load_state()
    if page.get_by_text(share).is_visible():
        return True
    page.get_by_role("button", name="Back to the form").click()
    return False


def test_three_in_the_morning_the_noisy_tenant_is_found_slowed_watched_and_let_go_again(
    served: Stack, admin: dict[str, Any], page: Page
) -> None:
    noisy, other = served.key("acme"), served.key("globex")
    with traffic(served, {noisy: 6, other: 3}):
        until(lambda: weight_of_acme(served, admin["token"]) == 4, "acme is live with weight 4")
        page.goto(served.url)
        page.get_by_label("User name").fill("ada")
        page.get_by_label("Password").fill(admin["password"])
        page.get_by_role("button", name="Log in").click()
        expect(page.get_by_role("heading", name="Overview")).to_be_visible()
        tenants = page.get_by_role("region", name="Tenants")
        expect(tenants.get_by_role("row").nth(1)).to_contain_text("acme")
        picture(page, "night-1-overview")

        tenants.get_by_role("link", name="acme", exact=True).click()
        expect(page.get_by_role("region", name="In the queues")).to_contain_text("67%")
        picture(page, "night-2-noisy-tenant")
        page.get_by_role("link", name="Edit", exact=True).click()
        page.get_by_label("Weight").fill("1")
        until(lambda: foretold(page, "acme: 67% → 33% of interactive-standard"), "its new share")
        picture(page, "night-3-preview")
        page.get_by_label("Reason").fill("It floods the lane; ticket 4711")
        page.get_by_role("button", name="Apply").click()
        expect(page.get_by_role("status")).to_contain_text("Revision 2 is in force")
        until(lambda: weight_of_acme(served, admin["token"]) == 1, "the new weight is in force")
        expect(page.get_by_role("region", name="In the queues")).to_contain_text("33%")
        picture(page, "night-4-slowed")

        page.get_by_role("link", name="Undo").click()
        expect(page.get_by_role("region", name="Changes")).to_contain_text("weight")
        expect(page.get_by_label("Reason")).to_have_value(
            "Undo revision 2: It floods the lane; ticket 4711"
        )
        picture(page, "night-5-undo")
        page.get_by_role("button", name="Undo").click()
        expect(page.get_by_role("status")).to_contain_text("Revision 3 is in force")
        until(lambda: weight_of_acme(served, admin["token"]) == 4, "the old weight is back")
        assert ask(served, noisy) == 200  # a key of before works on under the new policy

    page.get_by_role("link", name="Audit", exact=True).first.click()
    entries = page.get_by_role("row").filter(has_text="acme").filter(has_text="weight")
    expect(entries.nth(0)).to_contain_text("Undo revision 2")
    expect(entries.nth(1)).to_contain_text("ticket 4711")
    expect(entries.nth(1)).to_contain_text("ada")
    picture(page, "night-6-audit")
    file = page.request.get(f"{served.url}/audit/?field=weight&format=csv")
    assert "ticket 4711" in file.text()
