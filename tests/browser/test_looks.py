"""Every page of the URL conf in light and dark, wide and narrow: screenshots to look at, and axe's
judgement. A new page is covered by being there. The other half of an admin's pages, and a tenant's,
are in test_looks_too.py, for another worker."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.browser.looks import HALVES, MORE, look_at, looks, pages, see
from tests.browser.pictures import picture

pytestmark = pytest.mark.django_db(transaction=True)

PHONE = {"width": 390, "height": 844}


def test_a_first_half_of_an_admins_pages_looks_right(
    page: Page, live_server: Any, login: Any, seeded: dict[str, Any]
) -> None:
    login(page, seeded["admin"])
    seen = [*pages(page, live_server.url, seeded["ids"], HALVES[0]), *list(MORE.items())[HALVES[0]]]
    assert len(seen) > 25
    look_at(page, live_server.url, seen)


def test_the_page_of_a_new_secret_looks_right(
    page: Page, live_server: Any, login: Any, seeded: dict[str, Any]
) -> None:
    login(page, seeded["tenant-admin"])
    see(page, f"{live_server.url}/keys/{seeded['ids']['public_id']}/rotate/")
    page.get_by_role("button", name="Rotate").click()
    expect(page.get_by_role("heading", name="Key rotated")).to_be_visible()
    assert not list(looks(page, "key-secret"))


def test_the_login_page_looks_right(page: Page, live_server: Any) -> None:
    see(page, live_server.url + "/login/")
    assert not list(looks(page, "login"))


def test_times_are_in_the_viewers_zone_from_the_first_page_after_login(
    opened: Callable[..., Page], live_server: Any, login: Any, people: dict[str, Any]
) -> None:
    page = opened(timezone_id="Asia/Tokyo", viewport=PHONE)
    page.goto(live_server.url + "/login/")
    login(page, people["admin"])
    page.goto(live_server.url + "/audit/")
    expect(page.get_by_text("Times are in Asia/Tokyo.")).to_be_visible()
    moment = page.locator("time").first
    local = page.evaluate(
        "moment => new Date(moment).toLocaleTimeString('en-GB', {timeZone: 'Asia/Tokyo'})",
        moment.get_attribute("datetime"),
    )
    assert moment.inner_text().endswith(local)
    assert (moment.get_attribute("title") or "").endswith(" UTC")


def test_without_a_script_a_wide_table_scrolls_by_keyboard(
    opened: Callable[..., Page], live_server: Any, login: Any, seeded: dict[str, Any]
) -> None:
    page = opened(java_script_enabled=False, viewport=PHONE)
    login(page, seeded["admin"])
    page.goto(live_server.url + "/audit/")
    table = page.get_by_role("region", name="Audit")
    assert table.get_attribute("tabindex") == "0"
    picture(page, "narrow/audit-without-script")
