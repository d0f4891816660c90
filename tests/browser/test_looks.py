"""Every page in light and dark, wide and narrow: screenshots to look at, and axe's judgement."""

from __future__ import annotations

from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page

from tenants import services
from tests import builders
from tests.browser.conftest import ARTEFACTS

pytestmark = pytest.mark.django_db(transaction=True)

PAGES = {
    "overview": "/",
    "usage": "/usage/?tenant=acme&range=6h",
    "tenants": "/tenants/",
    "tenant": "/tenants/acme/",
    "tenant-edit": "/tenants/acme/edit/",
    "tenant-new": "/new/tenant/",
    "application-edit": "/tenants/acme/applications/support-bot/edit/",
    "tiers": "/tiers/",
    "tier-edit": "/tiers/gold/edit/",
    "lanes": "/lanes/",
    "lane-edit": "/lanes/async-batch/edit/",
    "pools": "/pools/",
    "pool-edit": "/pools/demo-chat/edit/",
    "budgets": "/budgets/",
    "policy": "/policy/",
    "policy-edit": "/policy/edit/",
    "bulk": "/bulk/tenants/?name=acme&name=hooli",
    "revisions": "/revisions/",
    "revision": "/revisions/2/",
    "restore": "/revisions/1/restore/",
    "undo-clash": "/revisions/2/revert/",
    "keys": "/keys/",
    "key-new": "/new/key/",
    "users": "/users/",
    "audit": "/audit/",
    "delete": "/tenants/stark/delete/",
    "api-docs": "/api/docs/",
    "admin": "/admin/",
    "admin-list": "/admin/tenants/auditentry/?kind=tier",
    "not-found": "/nowhere/",
}
SIZES = {"wide": (1440, 900), "narrow": (390, 844)}
SERIOUS = ("serious", "critical")


@pytest.fixture
def seeded(people: dict[str, Any]) -> dict[str, Any]:
    services.edit_object(
        "tenant", "globex", {"weight": 6}, actor=builders.ROOT, reason="They pay for more"
    )
    services.edit_object(
        "tenant",
        "globex",
        {"weight": 7, "timezone": "Europe/Paris"},
        actor=builders.ROOT,
        reason="More",
    )
    services.create_key("acme", "support-bot", "chat widget", actor=builders.ROOT)
    gone, _ = services.create_key("globex", None, "old script", 30, actor=builders.ROOT)
    services.revoke_key(gone.public_id, actor=builders.ROOT, reason="Found in a repository")
    builders.seed_usage(hours=3)
    builders.seed_samples()
    return people


def see(page: Page, address: str, size: tuple[int, int], scheme: str) -> None:
    page.set_viewport_size({"width": size[0], "height": size[1]})
    page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
    page.goto(address)
    page.wait_for_load_state("networkidle")
    if page.locator(".chart").count():
        page.wait_for_selector(".chart .main-svg, .chart .empty")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", SIZES)
def test_pages_look_right_and_axe_finds_nothing_serious(
    page: Page, live_server: Any, login: Any, seeded: dict[str, Any], size: str, scheme: str
) -> None:
    login(page, seeded["admin"])
    faults = []
    for name, address in PAGES.items():
        builders.seed_samples(minutes=0)  # a page shows a gateway as running for some seconds
        see(page, live_server.url + address, SIZES[size], scheme)
        folder = ARTEFACTS / size
        folder.mkdir(parents=True, exist_ok=True)
        page.screenshot(path=folder / f"{name}-{scheme}.png", full_page=True)
        overflow = page.evaluate("document.documentElement.scrollWidth - innerWidth")
        if overflow > 0:
            faults.append(f"{name}: {overflow} px wider than the window")
        for found in Axe().run(page).response["violations"]:
            if found["impact"] in SERIOUS:
                nodes = [node["html"][:160] for node in found["nodes"][:3]]
                faults.append(f"{name}: {found['id']}: {nodes}")
    assert not faults, "\n".join(faults)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", SIZES)
def test_the_login_page_looks_right(page: Page, live_server: Any, size: str, scheme: str) -> None:
    see(page, live_server.url + "/login/", SIZES[size], scheme)
    page.screenshot(path=ARTEFACTS / size / f"login-{scheme}.png", full_page=True)
    serious = [
        found["id"]
        for found in Axe().run(page).response["violations"]
        if found["impact"] in SERIOUS
    ]
    assert not serious
