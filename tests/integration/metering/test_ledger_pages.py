"""Alerts, past windows and estimates are on the pages of whoever may see them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from django.test import Client

from metering import alerts, learnt
from metering.services import write_sample
from tests import builders
from tests.integration.console.conftest import samples_stay_young
from tests.integration.metering.ledger import ACME, apply_calm_policy, save
from tests.integration.metering.test_learnt import taught

__all__ = ["samples_stay_young"]
pytestmark = [pytest.mark.django_db, pytest.mark.store]


@pytest.fixture
def admin(settings):
    settings.PASSWORD_HASHERS = builders.FAST_HASHERS
    builders.apply_policy()
    client = Client()
    client.force_login(builders.user("root", "admin"))
    return client


def text_of(client, page):
    answer = client.get(page)
    assert answer.status_code == 200
    return answer.content.decode()


def test_an_open_alert_is_a_notice_on_the_overview_until_it_is_resolved(admin):
    now = datetime.now(UTC)
    assert "usage verify --repair" not in text_of(admin, "/")
    alerts.note("ledger", ACME, "a <counter> differs", now)
    text = text_of(admin, "/")
    assert "a &lt;counter&gt; differs" in text
    assert "usage verify --repair" in text
    alerts.resolve_others("ledger", [], now)
    assert "usage verify --repair" not in text_of(admin, "/")


def test_a_tenants_page_shows_what_its_budgets_used_in_the_last_windows(admin):
    apply_calm_policy()
    now = datetime.now(UTC)
    for hours in range(6):
        save(1111.0 + hours, at=now - timedelta(hours=hours))
    text = text_of(admin, "/tenants/acme/")
    assert [f"{1111 + n:,}" in text for n in range(6)] == [True] * 4 + [False] * 2
    assert "5,000,000" in text
    assert "Budget windows" not in text_of(admin, "/tenants/hooli/")


def test_the_pools_page_warns_of_a_tokenizer_that_does_not_count(admin):
    at = datetime.now(UTC)
    pool = {"endpoints": {}, "lanes": {}, "tokenizer": {"kind": "file", "fault": ""}}
    model = builders.policy()["pools"][0]["model"]
    write_sample("here:1", {"pools": {model: pool}, "tenants": {}}, at)
    assert "Prompts are estimated" not in text_of(admin, "/pools/")
    pool["tokenizer"]["fault"] = "/models/tokenizer.json is not there"
    write_sample("here:1", {"pools": {model: pool}, "tenants": {}}, at)
    text = text_of(admin, "/pools/")
    assert "Prompts are estimated, not counted" in text
    assert "/models/tokenizer.json is not there" in text


def test_the_pools_page_tells_how_good_the_estimates_are(admin):
    assert "Estimates" not in text_of(admin, "/pools/")
    learnt.save(taught().learnt(), datetime.now(UTC))
    text = text_of(admin, "/pools/")
    assert 'scope="row">chat</th>' in text
    assert "bytes a token" in text
    assert "10 to 25% too low: 100.0%" in text  # outputs: 100 came, 80 were held
    assert "no request seen yet" in text  # of the model that is new
