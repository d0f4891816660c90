"""As test_looks.py: the other half of an admin's pages, and a tenant's people's."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import Page

from tests.browser.looks import HALVES, MORE, look_at, pages

pytestmark = pytest.mark.django_db(transaction=True)


def test_the_other_half_of_an_admins_pages_looks_right(
    page: Page, live_server: Any, login: Any, seeded: dict[str, Any]
) -> None:
    login(page, seeded["admin"])
    seen = [*pages(page, live_server.url, seeded["ids"], HALVES[1]), *list(MORE.items())[HALVES[1]]]
    assert len(seen) > 25
    look_at(page, live_server.url, seen)


def test_a_tenants_pages_look_right(
    page: Page, live_server: Any, login: Any, seeded: dict[str, Any]
) -> None:
    login(page, seeded["tenant-admin"])
    seen = list(pages(page, live_server.url, seeded["ids"]))
    assert len(seen) > 8
    look_at(page, live_server.url, seen, "tenant-admin-")
