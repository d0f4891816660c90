"""The operator's dashboards from outside: addresses, filters, CSV, who may look, how many queries;
and the noisy neighbour, named with the units it held."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from metering import alerts
from metering.dashboards import errors, ranges
from metering.dashboards.boards import KINDS
from metering.dashboards.budgets import Left, Owned
from metering.dashboards.budgets_board import gone_at, paces
from metering.dashboards.lanes_board import promises
from metering.dashboards.neighbours import neighbours
from metering.dashboards.watching import Filters, Watch
from metering.models import LiveMinute, UsageRow
from tenants import services
from tenants.core.document import Budget, Document
from tests import builders

pytestmark = [pytest.mark.django_db, pytest.mark.store]
AT = datetime(2026, 11, 29, 14, 2, tzinfo=UTC)
MOST_QUERIES = 24


def address(name: str) -> str:
    return "/" if name == "overview" else f"/watch/{name}/"


@pytest.mark.parametrize("name", KINDS)
def test_every_board_is_shown_empty_and_full_within_the_same_number_of_queries(
    admin: Client, name: str, django_assert_max_num_queries: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = timezone.now()  # else a minute that turns between page and CSV has another hour in it
    monkeypatch.setattr(timezone, "now", lambda: at)
    for filled in (False, True):
        if filled:
            builders.seed_usage(at, hours=1.5)
            builders.seed_samples(minutes=20)
        for query in ("?range=1h", "?range=7d&tenant=acme", "?range=90d&pool=demo-chat"):
            admin.get(address(name) + query)
            with django_assert_max_num_queries(MOST_QUERIES):
                answer = admin.get(address(name) + query)
            assert answer.status_code == 200
            for chart in answer.context["charts"]:
                lines = admin.get(f"{address(name)}{query}&csv={chart.name}").content.decode()
                assert lines.splitlines()[0] == ",".join(chart.header)
                assert not filled or f"csv={chart.name}" in answer.content.decode()


def test_a_board_without_anything_says_what_to_do(admin: Client) -> None:
    for name, words in {
        "latency": "Choose a longer range",
        "throttles": "Choose a longer range",
        "lanes": "<code>manage.py serve</code>",
        "pools": "<code>manage.py serve</code>",
        "neighbours": "Whose requests were slow?",
    }.items():
        assert words in admin.get(address(name)).content.decode()


def test_the_overview_leads_from_an_alert_to_its_tenant_and_says_who_is_suspended(
    admin: Client,
) -> None:
    services.edit_object("tenant", "acme", {"enabled": False}, actor=builders.ROOT)
    builders.seed_samples(minutes=1)
    now = timezone.now()
    alerts.note("throttle_rate", "globex", "globex: 9 of 20 requests were throttled", now)
    alerts.note("endpoint_down", "http://10.0.0.1/v1 of demo-chat", "it does not answer", now)
    text = " ".join(admin.get("/").content.decode().split())
    assert '<a class="nowrap" href="/tenants/globex/">Tenant globex</a>' in text
    assert '<a class="nowrap" href="/pools/#pool-demo-chat">Pools</a>' in text
    assert 'href="/tenants/acme/">acme</a> <span class="tag bad">suspended</span>' in text
    assert 'href="/tenants/globex/">globex</a> <span' not in text


def test_the_overview_tells_a_critical_alert_from_a_warning_and_tells_it_first(
    admin: Client,
) -> None:
    now = timezone.now()
    alerts.note("endpoint_down", "http://10.0.0.1/v1 of demo-chat", "it does not answer", now)
    for place in range(6):
        alerts.note("throttle_rate", f"t{place}", "9 of 20 requests were throttled", now)
    text = " ".join(admin.get("/").content.decode().split())
    critical = '<div class="notice error"><span class="tag bad">critical</span>'
    warning = '<div class="notice warning"><span class="tag warn">warning</span>'
    assert text.index(critical) < text.index(warning)
    assert (text.count(critical), text.count(warning)) == (1, 4)
    alert = next(each for each, *_ in admin.get("/").context["alerts"])
    admin.post(f"/alerts/{alert.pk}/acknowledge/", {"note": ""})
    assert (
        '<div class="notice info"><span class="tag bad">critical' in admin.get("/").content.decode()
    )


@pytest.mark.parametrize(
    ("board", "chart"),
    [
        ("overview", "entitled"),
        ("overview", "debt"),
        ("throttles", "reasons"),
        ("lanes", "reserved"),
    ],
)
def test_a_chart_of_the_past_says_nothing_of_the_minute_that_runs(
    admin: Client, board: str, chart: str
) -> None:
    charts = {each.name: each for each in admin.get(address(board)).context["charts"]}
    assert charts[chart].empty.startswith("In the minutes that are over no")
    assert charts[chart].empty.endswith("The one that still runs is drawn once it is.")


def test_the_whole_state_is_in_the_address_and_kept_from_board_to_board(admin: Client) -> None:
    text = admin.get("/watch/latency/?range=6h&tenant=acme&lane=async-batch").content.decode()
    assert '/watch/throttles/?range=6h&amp;tenant=acme&amp;lane=async-batch"' in text
    assert '/watch/budgets/?range=6h&amp;tenant=acme"' in text
    assert 'name="tenant" type="search" list="tenant-names" autocomplete="off" value="acme"' in text
    assert "?range=24h&amp;tenant=acme&amp;lane=async-batch" in text
    frozen = "?since=2026-11-28T10:00Z&until=2026-11-28T12:00Z&tenant=acme"
    fixed = admin.get(f"/{frozen}")
    assert fixed.context["span"].since == datetime(2026, 11, 28, 10, tzinfo=UTC)
    assert 'hx-trigger="every' not in fixed.content.decode()  # what is past does not change
    assert (
        'hx-get="/watch/latency/?range=15m"'
        in admin.get("/watch/latency/?range=15m").content.decode()
    )


def test_times_without_an_offset_are_the_viewers_and_become_a_link_for_all(admin: Client) -> None:
    admin.cookies["tz"] = "Asia/Kathmandu"
    moved = admin.get("/watch/lanes/?since=2026-11-28T10:00&until=2026-11-28T12:00&pool=demo-chat")
    assert moved["location"] == (
        "/watch/lanes/?since=2026-11-28T04%3A15Z&until=2026-11-28T06%3A15Z&pool=demo-chat"
    )
    page = admin.get(moved["location"])
    assert 'value="2026-11-28T10:00"' in page.content.decode()


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("range=never", "range is “never”; it takes 15m, 1h, 6h, 24h, 7d, 30d, 90d."),
        ("since=yesterday", "since is “yesterday”; it takes a time such as 2026-11-29T14:00."),
        (
            "since=2026-11-28T12:00Z&until=2026-11-28T10:00Z",
            "since is 2026-11-28T12:00Z; it takes a time before until, 2026-11-28T10:00Z.",
        ),
        (
            "since=2020-01-01T00:00Z&until=2026-11-28T10:00Z",
            "since is 2020-01-01T00:00Z; it takes a time at most 400 days before until.",
        ),
    ],
)
def test_a_wrong_range_is_told_and_the_usual_one_is_shown(
    admin: Client, query: str, words: str
) -> None:
    for page in ("/", "/watch/latency/", "/usage/?tenant=acme"):
        answer = admin.get(f"{page}{'&' if '?' in page else '?'}{query}")
        assert words in answer.content.decode()
        assert answer.context["span"].key == ("24h" if "usage" in page else "1h")


@pytest.mark.parametrize("zone", ["Asia/Tokyo", "America/New_York"])
@pytest.mark.parametrize(
    "query",
    [
        "since=0001-01-01T00:00&until=0001-01-01T05:00",
        "since=0001-01-01T00:00Z&until=0001-01-01T05:00Z",
        "since=9999-12-31T20:00Z&until=9999-12-31T23:59Z",
    ],
)
def test_a_time_that_no_zone_can_tell_is_told_to_be_wrong(
    admin: Client, zone: str, query: str
) -> None:
    admin.cookies["tz"] = zone
    for page in ("/", "/usage/"):
        assert "it takes a time such as" in admin.get(f"{page}?{query}").content.decode()


def test_operators_look_and_tenants_people_do_not(as_: Callable[[str], Client]) -> None:
    for name in KINDS:
        assert as_("operator").get(address(name)).status_code == 200
        refused = as_("tenant-viewer").get(address(name))
        assert refused.status_code in (302, 403)
        assert as_("tenant-admin").get(f"{address(name)}?csv=tokens").status_code in (302, 403)


def test_what_is_not_there_is_not_found(admin: Client) -> None:
    assert admin.get("/watch/nonsense/").status_code == 404
    assert admin.get("/?csv=nonsense").status_code == 404


def test_a_csv_holds_no_formula_of_a_tenants(admin: Client) -> None:
    from metering.dashboards.charts import _plain

    assert _plain("=1+1") == "'=1+1"
    assert (_plain(""), _plain("acme"), _plain(2.0), _plain(2.5)) == ("", "acme", 2, 2.5)


# --- budgets ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("budget", "remaining", "units", "gone_in"),
    [
        ({"kind": "sustained", "period": "hour"}, 600.0, 1_200.0, timedelta(minutes=30)),
        ({"kind": "sustained", "period": "hour"}, 600.0, 400.0, None),  # it starts anew before
        ({"kind": "sustained", "period": "hour"}, 0.0, 0.0, timedelta()),
        ({"kind": "sustained", "period": "hour"}, None, 400.0, None),
        ({"kind": "burst", "refill_per_second": 1}, 600.0, 3_600.0, None),  # it refills as fast
        ({"kind": "burst", "refill_per_second": 1}, 600.0, 4_200.0, timedelta(hours=1)),
    ],
)
def test_when_a_budget_will_be_gone(
    budget: dict[str, Any], remaining: float | None, units: float, gone_in: timedelta | None
) -> None:
    owned = Owned("tenant:acme/b", Budget(name="b", cost=1_000, **budget))
    resets = AT + timedelta(minutes=45) if budget["kind"] == "sustained" else None
    found = gone_at(Left(owned, None, None, remaining, resets), units, AT)
    assert found == (None if gone_in is None else AT + gone_in)


# --- lanes against what is reserved for them -------------------------------------------------


def test_a_budgets_pace_counts_each_request_once(db: None) -> None:
    """Of an application and of none: both are the tenant's."""
    served(1, AT, tenant="initech", cost=300.0)
    served(2, AT, tenant="acme", application="nightly", cost=20.0)
    served(3, AT, tenant="acme", cost=1.0)
    builders.count_minutes([AT])
    pace = paces(watching())
    assert pace == {
        ("initech", ""): 300.0,
        ("acme", "nightly"): 20.0,
        ("acme", ""): 21.0,
    }


def test_a_lane_is_promised_its_reserved_share_for_as_much_as_it_asks(db: None) -> None:
    """0.3, 0.2 and 0.1 are reserved. The first waited a hundredth of a minute and asked for little,
    the second waited all the time, the third never."""
    minute(0, "", "interactive-critical", waiting_s=0.6, queued_s=0.6, served=99.0)
    minute(0, "", "interactive-standard", waiting_s=60.0, queued_s=90.0, served=100.0)
    minute(0, "", "async-batch", served=801.0)
    for lane in ("", "interactive-standard"):
        kept = promises(watching(lane=lane))
        assert set(kept) == {"interactive-critical", "interactive-standard"}
        light, heavy = kept["interactive-critical"], kept["interactive-standard"]
        assert light.promised / light.of == pytest.approx(0.1)  # 99 of 1,000 and a little more
        assert light.got / light.of == pytest.approx(0.099)
        assert heavy.promised / heavy.of == pytest.approx(0.2)
        assert heavy.got / heavy.of == pytest.approx(0.1)


# --- how far estimates were off ---------------------------------------------------------------


def served(number: int, at: datetime, **fields: Any) -> None:
    given = {"tenant": "acme", "model": "demo-chat", "cost": 100.0, "estimated_cost": 100.0}
    given["usage_source"] = "engine"
    UsageRow.objects.create(request_id=f"r{number}", at=at, **{**given, **fields})


def test_how_far_estimates_were_off_is_told_of_a_range_and_of_a_pool(
    admin: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(30):
        served(number, AT + timedelta(minutes=number), estimated_cost=150.0)
    for number in range(30, 60):
        served(number, AT + timedelta(hours=2, minutes=number), estimated_cost=90.0)
    served(60, AT, model="org/code-7b", estimated_cost=100.0)
    served(61, AT, status=429, cost=0.0)
    served(62, AT, usage_source="estimated", estimated_cost=9.0)
    span = "since=2026-11-29T14:00Z&until=2026-11-29T15:00Z"
    chat, code = admin.get(f"/watch/pools/?{span}").context["errors"]
    assert (chat.model, chat.seen, chat.lean) == ("demo-chat", 30, "too high")
    assert chat.p50 == pytest.approx(0.5, rel=0.05)
    assert (code.model, code.seen, code.lean) == ("org/code-7b", 1, "neither")
    one = admin.get(f"/watch/pools/?{span}&pool=org/code-7b").context["errors"]
    assert [row.model for row in one] == ["org/code-7b"]
    monkeypatch.setattr(errors, "MOST", 20)
    day = "since=2026-11-29T14:00Z&until=2026-11-30T14:00Z"
    chat = admin.get(f"/watch/pools/?{day}&pool=demo-chat").context["errors"][0]
    assert chat.seen <= 20
    parts = {bar.label: bar.part for bar in chat.bars if bar.part}
    # 90 where 100 came is a tenth, at the border of two bars.
    assert {"25 to 50% too high", "50 to 100% too high"} & set(parts)
    assert {"2 to 10% too low", "10 to 25% too low"} & set(parts)
    assert "No request was measured" in admin.get("/watch/pools/?range=15m").content.decode()


# --- the noisy neighbour --------------------------------------------------------------------


def watching(**filters: str) -> Watch:
    since, until = AT - timedelta(minutes=30), AT + timedelta(minutes=30)
    span = ranges.between(since, until, until + timedelta(days=1))
    return Watch(span, Filters(**filters), Document.model_validate(builders.policy()), until)


def minute(number: int, tenant: str, lane: str = "interactive-standard", **fields: Any) -> None:
    given = {"observed_s": 60.0, "weight": 1.0, **fields}
    LiveMinute.objects.create(
        start=AT + timedelta(minutes=number), pool="demo-chat", lane=lane, tenant=tenant, **given
    )


def judged(who: str, **filters: str) -> dict[str, Any]:
    return neighbours(watching(tenant=who, **filters)).context


def test_the_neighbour_that_held_the_capacity_is_named_with_its_units(db: None) -> None:
    for number in range(8):
        minute(number, "acme", queued_s=101.5, waiting_s=60.0, running_s=20.0, served=43_500.0)
        minute(number, "hooli", queued_s=9.0, waiting_s=9.0, running_s=300.0, served=106_500.0)
    minute(20, "hooli", served=900_000.0)  # when acme did not wait
    told = judged("acme")
    assert told["sentence"] == (
        "Between 14:02 and 14:10 acme's requests waited 812 s together in interactive-standard; "
        "of the 1.2 M units served meanwhile hooli got 71%, where lanes and weights give it "
        "50%."
    )
    helps, whose = told["remedy"]
    assert helps.startswith("What helps: less “running at once” for hooli")
    assert whose == ["hooli", "acme"]
    assert [(row["name"], row["units"]) for row in told["rows"]] == [
        ("hooli", 852_000.0),
        ("acme", 348_000.0),
    ]


def test_only_the_part_of_a_minute_in_which_it_waited_counts(db: None) -> None:
    minute(0, "acme", queued_s=15.0, waiting_s=15.0, served=0.0)
    minute(0, "hooli", served=4_000.0)
    (row, _) = judged("acme")["rows"]
    assert (row["name"], row["units"]) == ("hooli", 1_000.0)


def test_a_lane_below_is_entitled_to_its_reserved_share_only(db: None) -> None:
    """async-batch: 0.1 reserved; interactive-standard, the first that waits, gets the rest."""
    minute(0, "acme", queued_s=60.0, waiting_s=60.0, served=200.0)
    minute(0, "umbrella", lane="async-batch", queued_s=60.0, waiting_s=60.0, served=800.0)
    rows = {row["name"]: row for row in judged("acme")["rows"]}
    assert rows["umbrella"]["entitled"] == pytest.approx(0.1)
    assert rows["acme"]["entitled"] == pytest.approx(0.9)
    assert "umbrella got 80%, where lanes and weights give it 10%" in judged("acme")["sentence"]


def test_nobody_is_entitled_to_more_than_it_asked_for(db: None) -> None:
    """globex, in a better lane, never waited: it got what it asked for, and the rest is shared."""
    minute(0, "globex", lane="interactive-critical", served=100.0)
    minute(0, "acme", queued_s=30.0, waiting_s=30.0, served=300.0, weight=3.0)
    minute(0, "hooli", queued_s=90.0, waiting_s=60.0, served=1_600.0)
    rows = {row["name"]: row["entitled"] for row in judged("acme")["rows"]}
    assert rows == pytest.approx({"globex": 0.05, "acme": 0.7125, "hooli": 0.2375})
    assert "hooli got 80%, where lanes and weights give it 24%" in judged("acme")["sentence"]


def test_where_nobody_held_too_much_it_says_so(db: None) -> None:
    minute(0, "acme", queued_s=60.0, waiting_s=60.0, served=510.0)
    minute(0, "globex", queued_s=60.0, waiting_s=60.0, served=490.0)
    assert judged("acme")["sentence"].endswith(
        "it got 51% itself, where lanes and weights give it 50%, and nobody got far beyond what "
        "they give: there was more work than capacity."
    )
    assert judged("acme")["remedy"] == (
        "What helps: another endpoint of its pool, or more weight for acme.",
        ["acme"],
    )


def test_who_held_it_itself_is_told_so(db: None) -> None:
    minute(0, "acme", queued_s=60.0, waiting_s=60.0, served=900.0)
    minute(0, "globex", queued_s=60.0, waiting_s=60.0, served=100.0)
    assert judged("acme")["sentence"].endswith(
        "it got 90% itself, where lanes and weights give it 50%: it asked for more."
    )


def test_who_is_held_back_by_its_own_limit_is_told_so(db: None) -> None:
    """initech may run 8 at once."""
    minute(0, "initech", queued_s=60.0, waiting_s=60.0, running_s=480.0, served=500.0)
    minute(0, "hooli", served=900.0)
    told = judged("initech")
    assert "all 8 requests running that its own limit allows" in told["sentence"]
    assert told["remedy"] == ("What helps: more “running at once” for initech.", ["initech"])


def test_who_did_not_wait_is_sent_to_the_model(db: None) -> None:
    assert judged("globex")["sentence"].startswith("globex sent nothing in")
    assert judged("globex")["remedy"] == ("", [])
    builders.seed_usage(AT + timedelta(minutes=20), hours=0.5)
    assert "so look at the model and its engines" in judged("globex")["sentence"]


def test_the_view_is_one_click_from_the_overviews_slow_list(admin: Client) -> None:
    builders.seed_usage(timezone.now(), hours=0.5)
    builders.seed_samples(minutes=20)
    text = admin.get("/?range=1h").content.decode()
    assert 'href="/watch/neighbours/?tenant=umbrella&amp;range=1h"' in text
    page = admin.get("/watch/neighbours/?tenant=initech&range=1h")
    assert "initech&#x27;s requests waited" in page.content.decode()
    assert 'href="/tenants/initech/edit/">Edit initech</a>' in page.content.decode()
    assert page.context["charts"][0].figure["data"]
