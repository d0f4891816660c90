"""The usage page: a tenant sees all of its own and nothing that depends on anybody else."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo

import pytest
from django.core import signing
from django.http import QueryDict
from django.test import Client
from django.utils import timezone

from metering import alerts
from metering.dashboards import ranges
from metering.models import GatewaySample, UsageRow
from tenants import services
from tests import builders

pytestmark = [pytest.mark.django_db, pytest.mark.store]

TENANT_ROLES = ("tenant-admin", "tenant-viewer")
AT = datetime.now(UTC).replace(microsecond=0)
SINCE, UNTIL = AT - timedelta(hours=2), AT - timedelta(minutes=1)
RANGE = f"since={SINCE:%Y-%m-%dT%H:%M:%SZ}&until={UNTIL:%Y-%m-%dT%H:%M:%SZ}"
CALLS = (f"usage/records/?limit=1000&{RANGE}", f"usage/summary/?by=model&{RANGE}", "keys/")
CSVS = ("tokens", "requests", "queue", "throttles", "applications", "models", "keys", "days")


def refused(reason: str, **fields: Any) -> UsageRow:
    row = UsageRow(
        request_id=f"r-{reason}",
        at=AT - timedelta(minutes=5),
        tenant="acme",
        model="demo-chat",
        lane="interactive-standard",
        status=429,
        finish_reason="throttled",
        throttle_reason=reason,
    )
    for name, value in fields.items():
        setattr(row, name, value)
    row.save()
    builders.count_minutes([row.at])
    return row


def text_of(client: Client, address: str) -> str:
    answer = client.get(address)
    assert answer.status_code == 200, address
    return " ".join(answer.content.decode().split())


@pytest.mark.parametrize("zone", ["UTC", "Asia/Tokyo", "America/New_York"])
def test_a_picked_day_is_that_day_on_the_viewers_clock(
    as_: Callable[[str], Client], zone: str
) -> None:
    """D20: half-open, and what the page totals is what the ledger has."""
    first = datetime(AT.year, AT.month, AT.day, tzinfo=UTC) - timedelta(days=3)
    moments = [first + timedelta(minutes=37 * n) for n in range(110)]  # over nearly three days
    rows = [UsageRow(request_id=f"d{n}", at=at, tenant="acme") for n, at in enumerate(moments)]
    UsageRow.objects.bulk_create(rows)
    builders.count_minutes(moments)
    day = (first + timedelta(days=1)).date()
    local = [at.astimezone(ZoneInfo(zone)).date() for at in moments]
    client = as_("tenant-viewer")
    client.cookies["tz"] = zone
    page = f"/usage/?since={day}&until={day + timedelta(days=1)}"
    picked = client.get(page, follow=True).context
    assert [(line.name, line.share.requests) for line in picked["days"]] == [
        (str(day), local.count(day))
    ]
    assert picked["share"].requests == local.count(day) > 30


# --- nothing of anybody else ----------------------------------------------------------------


@pytest.fixture
def alone(settings: Any, monkeypatch: pytest.MonkeyPatch) -> dict[str, Client]:
    """Acme, as if it had the platform to itself."""
    settings.PASSWORD_HASHERS = builders.FAST_HASHERS
    monkeypatch.setattr("metering.dashboards.views.timezone", SimpleNamespace(now=lambda: AT))
    policy = builders.policy()
    policy["tenants"] = policy["tenants"][:1]
    builders.apply_policy(policy)
    services.create_key("acme", "support-bot", "chat widget", actor=builders.ROOT)
    rows = [row for row in builders.usage_rows(UNTIL, 0.6) if row.tenant == "acme"]
    UsageRow.objects.bulk_create(rows)
    builders.count_minutes([row.at for row in rows])
    sample(("acme",))
    clients = {}
    for role in TENANT_ROLES:
        clients[role] = Client()
        clients[role].force_login(builders.user(role, role, "acme"))
    return clients


def sample(tenants: tuple[str, ...]) -> None:
    state = builders.live_state(AT)
    for lane in state["pools"]["demo-chat"]["lanes"].values():
        lane["tenants"] = {name: lane["tenants"][name] for name in tenants}
    state["tenants"] = {name: state["tenants"][name] for name in tenants}
    GatewaySample.objects.create(gateway="host-a:4711", at=AT, state=state)


def company() -> None:
    """Everybody else comes: their policy, people, keys, use, waiting requests and alerts."""
    builders.apply_policy(reason="They all come")
    builders.user("bob", "tenant-admin", "globex")
    services.create_key("globex", "search", "search", actor=builders.ROOT)
    rows = [row for row in builders.usage_rows(UNTIL, 0.6) if row.tenant != "acme"]
    UsageRow.objects.bulk_create(rows)
    builders.count_minutes([row.at for row in rows])
    sample(("acme", "globex", "initech"))
    alerts.note("throttle_rate", "umbrella", "umbrella: 64% were throttled", AT)


def addresses() -> Iterator[str]:
    row = UsageRow.objects.filter(tenant="acme").order_by("request_id")[0]
    yield f"/usage/?{RANGE}"
    yield f"/usage/?{RANGE}&request={row.request_id}"
    yield f"/usage/?{RANGE}&tenant=globex"
    yield from (f"/usage/?{RANGE}&csv={name}" for name in CSVS)
    yield from ("/keys/", "/keys/?state=all")
    yield from (f"/api/v1/{call}" for call in CALLS)


def seen(client: Client) -> dict[str, str]:
    """What each address answers, less the token of its forms, which is new each time."""
    found = {}
    for address in addresses():
        answer = client.get(address)
        assert answer.status_code == 200, address
        text = answer.content.decode()
        found[address] = re.sub(r'name="csrfmiddlewaretoken" value="\w+"', "", text)
    return found


@pytest.mark.parametrize("role", TENANT_ROLES)
def test_pages_csv_and_json_are_the_same_to_the_byte_whoever_else_is_there(
    alone: dict[str, Client], role: str
) -> None:
    before = seen(alone[role])
    assert "Usage of acme" in before[f"/usage/?{RANGE}"]
    assert len(before[f"/usage/?{RANGE}&csv=tokens"].splitlines()) > 30
    company()
    after = seen(alone[role])
    assert [address for address in before if before[address] != after[address]] == []


@pytest.mark.parametrize(("call", "column"), [("usage/records", "request_id"), ("keys", "id")])
def test_a_cursor_holds_no_number_that_counts_everybodys_rows(
    alone: dict[str, Client], call: str, column: str
) -> None:
    services.create_key("acme", actor=builders.ROOT)
    told = alone["tenant-viewer"].get(f"/api/v1/{call}/?limit=1").json()
    cursor = QueryDict(urlsplit(told["next"]).query)["cursor"]
    *_, values = signing.loads(cursor, salt=f"/api/v1/{call}/")
    assert values[-1] == told["results"][0][column]
    assert not any(isinstance(value, int) for value in values)


def test_another_tenants_request_is_as_if_it_were_not_there(as_: Callable[[str], Client]) -> None:
    refused("max_running", tenant="globex", request_id="of-globex", application="search")
    text = text_of(as_("tenant-viewer"), "/usage/?request=of-globex")
    assert "No request of acme has the id “of-globex”" in text
    assert "search" not in text.replace("form", "").replace('role="search"', "").replace(
        'class="search', ""
    )
    assert "Too many requests at once" in text_of(as_("outsider"), "/usage/?request=of-globex")


# --- why was I throttled? -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reason", "said"),
    [
        ("requests_per_minute", "Too many requests in a minute: at most 600. Send fewer requests"),
        ("max_running", "Too many requests at once: at most 32. Wait for answers"),
        (
            "tenant:acme/burst",
            "Burst budget burst of the tenant was used up: 200,000 units, "
            "refilled by 4,000 a second. Spread requests over time",
        ),
        (
            "tenant:acme/hourly",
            "Budget hourly of the tenant was used up: 5,000,000 units an hour. "
            "By now 5,000,000 units are left in it.",
        ),
        ("max_input_tokens", "Prompt too long: at most 32,768. Shorten the prompt"),
    ],
)
def test_a_request_is_found_by_its_id_with_why_and_what_helps(
    as_: Callable[[str], Client], reason: str, said: str
) -> None:
    row = refused(reason)
    text = text_of(as_("tenant-viewer"), f"/usage/?request={row.request_id}")
    plain = re.sub(r"</?strong>", "", text)
    assert said in plain
    assert said.split(".")[0] in text_of(as_("tenant-viewer"), "/usage/")


def test_a_wait_that_was_too_long_counts_as_refused_and_names_the_lanes_longest_one(
    as_: Callable[[str], Client],
) -> None:
    refused("queue_timeout", status=503, finish_reason="timeout")
    text = text_of(as_("tenant-viewer"), "/usage/?request=r-queue_timeout").replace("</strong>", "")
    assert "Nothing was throttled" not in text
    assert "as long as its lane allows: 60 s in interactive-standard. Try again" in text


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"estimated_cost": 6e6}, "5,000,000 units are left in it, and this one needs 6,000,000."),
        ({"throttle_reason": "", "status": 404, "finish_reason": "rejected"}, "no such model"),
        ({"throttle_reason": "", "status": 400, "finish_reason": "rejected"}, "malformed"),
    ],
)
def test_what_would_be_refused_again_is_told_as_that(
    as_: Callable[[str], Client], fields: dict[str, Any], said: str
) -> None:
    row = refused("tenant:acme/hourly", **fields)
    assert said in text_of(as_("tenant-viewer"), f"/usage/?request={row.request_id}")


def test_the_bill_of_all_tenants_is_one_table(admin: Client) -> None:
    """For charge-back: of last month, say; it agrees with each tenant's own page."""
    builders.seed_usage(AT, hours=1.0)
    lines = admin.get(f"/?{RANGE}&csv=tenants").content.decode().splitlines()
    assert lines[0] == (
        "tenant,requests,throttled,prompt_tokens,cached_tokens,completion_tokens,cost,money"
    )
    table = {line.split(",")[0]: line.split(",")[1:] for line in lines[1:]}
    share = admin.get(f"/usage/?{RANGE}&tenant=globex").context["share"]
    assert table["globex"][:2] == [str(share.requests), str(share.throttled)]
    assert float(table["globex"][5]) == pytest.approx(share.cost)


def test_a_month_is_one_click_on_the_viewers_clock(admin: Client) -> None:
    with timezone.override("America/New_York"):
        now, last = ranges.months(datetime(2026, 11, 5, 12, 0, tzinfo=UTC))
    assert now == ("this month", "since=2026-11-01T04%3A00Z&until=2026-11-05T12%3A00Z")
    assert last == ("last month", "since=2026-10-01T04%3A00Z&until=2026-11-01T04%3A00Z")
    for page in ("/", "/usage/?tenant=globex&", "/watch/throttles/"):
        assert ">last month</a>" in text_of(admin, page), page


def test_a_request_that_a_gateway_lost_says_what_is_known_of_it(
    as_: Callable[[str], Client],
) -> None:
    row = refused("gateway_restart", status=500, finish_reason="error", e2e_ms=0.0)
    text = text_of(as_("tenant-viewer"), f"/usage/?request={row.request_id}")
    assert "The gateway was restarted while it ran; its use is an estimate." in text
    assert "how long it took is not known" in text
    assert "<dt>Limit</dt>" not in text


def test_each_request_is_drawn_as_what_became_of_it(
    as_: Callable[[str], Client], admin: Client
) -> None:
    """One a line: a failed one is not drawn as served, and the refused ones are the throttled."""
    ends = [
        ("served", 200, "stop", ""),
        ("served", 200, "length", ""),
        ("refused", 429, "throttled", "max_running"),
        ("refused", 503, "rejected", "predicted_wait"),
        ("refused", 503, "timeout", "queue_timeout"),
        ("failed", 502, "error", ""),
        ("failed", 504, "timeout", ""),
        ("failed", 502, "error", "gateway_restart"),
        ("rejected", 404, "rejected", ""),
        ("failed", 503, "rejected", ""),
        ("cancelled", 499, "cancelled", ""),
    ]
    for number, (_, status, finish, reason) in enumerate(ends):
        refused(reason, request_id=f"e{number}", status=status, finish_reason=finish)
    client = as_("tenant-viewer")
    page = client.get(f"/usage/?{RANGE}")
    chart = next(each for each in page.context["charts"] if each.name == "requests")
    sums = dict.fromkeys(chart.header[1:], 0.0)
    for _, *values in chart.rows:
        for name, value in zip(sums, values, strict=True):
            sums[name] += value or 0.0
    assert sums == dict(Counter(end for end, *_ in ends))
    assert sums["refused"] == page.context["share"].throttled
    assert sum(sums.values()) == page.context["share"].requests
    lines = text_of(client, f"/usage/?{RANGE}&csv=requests")
    assert ",".join(sums) in lines
    overview = admin.get(f"/?{RANGE}").context["totals"]
    assert (overview["throttled"], overview["errors"]) == (sums["refused"], sums["failed"])
    board = admin.get(f"/watch/throttles/?{RANGE}").context["charts"]
    rates = next(each for each in board if each.name == "rate")
    parts = [row for row in rates.rows if row[1] is not None]
    assert rates.header[1:] == ["refused", "failed", "rejected"]
    assert parts[0][1:] == pytest.approx([100 * sums[end] / len(ends) for end in rates.header[1:]])


def test_a_refusal_says_what_helps_with_the_kind_of_budget_that_refused(
    admin: Client,
) -> None:
    for account in ("tenant:acme/hourly", "tenant:acme/gone"):
        refused(account)
    tenant, board = text_of(admin, "/tenants/acme/"), text_of(admin, "/watch/throttles/")
    for text in (tenant, board):
        assert "of the tenant was used up" in text
        assert "It starts anew when its window ends." in text
        assert "It is not in force any more." in text
        assert "refills all the time" not in text


def test_a_refusal_is_told_by_the_limit_of_its_time(as_: Callable[[str], Client]) -> None:
    for most in (3, 900):
        changed = services.edit_object(
            "tenant", "acme", {"limits": {"requests_per_minute": most}}, actor=builders.ROOT
        )
    refused("requests_per_minute", policy_revision=changed.revision - 1)
    text = text_of(as_("tenant-viewer"), "/usage/?request=r-requests_per_minute")
    assert "Too many requests in a minute: at most 3. By now it is 900." in text.replace(
        "</strong>", ""
    )


def test_a_soft_limit_says_when_it_refuses(as_: Callable[[str], Client]) -> None:
    services.edit_object(
        "tenant", "acme", {"soft_limits": ["requests_per_minute"]}, actor=builders.ROOT
    )
    refused("requests_per_minute")
    assert "at most 600 while others wait for the model" in text_of(
        as_("tenant-viewer"), "/usage/?request=r-requests_per_minute"
    )


def test_a_budget_that_is_used_up_says_when_it_starts_anew_and_what_happens_till_then(
    as_: Callable[[str], Client],
) -> None:
    state = builders.live_state(timezone.now())
    state["tenants"]["acme"]["budgets"][0] |= {
        "used": 5e6,
        "remaining": 0.0,
        "resets_at": "2030-01-02T03:00:00Z",
    }
    GatewaySample.objects.create(gateway="g", at=timezone.now(), state=state)
    refused("tenant:acme/hourly")
    client = as_("tenant-viewer")
    client.cookies["tz"] = "Asia/Tokyo"
    text = text_of(client, "/usage/")
    assert "It starts anew at 02 Jan 12:00." in text
    assert "used up: its requests are refused" in text


def test_a_request_that_was_served_says_so_with_its_times(as_: Callable[[str], Client]) -> None:
    refused("", status=200, finish_reason="stop", queue_ms=1500.0, ttft_ms=1800.0, cost=320.0)
    text = text_of(as_("tenant-viewer"), "/usage/?request=r-")
    assert "It was served." in text
    assert "1.50 s in the queue, first token after 1.80 s" in text
    assert "320 units" in text


def test_an_operator_finds_a_request_without_knowing_whose_it_is(
    as_: Callable[[str], Client],
) -> None:
    refused("max_running", tenant="hooli", request_id="whose")
    text = text_of(as_("operator"), "/usage/?request=whose&tenant=acme")
    assert "Usage of hooli" in text
    assert "Too many requests at once" in text


def test_an_unknown_id_says_where_ids_stand(as_: Callable[[str], Client]) -> None:
    text = text_of(as_("tenant-admin"), "/usage/?request=<b>none")
    assert "has the id “&lt;b&gt;none”" in text
    assert "x-request-id" in text


# --- budgets, limits, keys ------------------------------------------------------------------


def test_budgets_of_applications_and_keys_stand_beside_the_tenants(
    as_: Callable[[str], Client],
) -> None:
    budget = {"name": "small", "kind": "sustained", "cost": 7000, "period": "day"}
    key, _ = services.create_key("acme", None, "ci", budgets=[budget], actor=builders.ROOT)
    text = text_of(as_("tenant-viewer"), "/usage/")
    assert f"of key fl_{key.public_id}, sustained" in text
    assert "7,000" in text
    assert "refills 4,000 a second" in text
    for label, value in (("Requests a minute", "600"), ("Running at once", "32")):
        assert f"<dt>{label}</dt><dd>{value}</dd>" in text


def test_the_tenants_admin_manages_its_keys_from_the_page_and_its_viewer_does_not(
    as_: Callable[[str], Client],
) -> None:
    key, _ = services.create_key("acme", None, "ci", actor=builders.ROOT)
    managing = [f"/keys/{key.public_id}/{what}/" for what in ("rotate", "revoke")]
    managing.append("/new/key/?tenant=acme")
    text, viewers = (text_of(as_(role), "/usage/") for role in TENANT_ROLES)
    assert all(f'href="{address}"' in text for address in managing)
    assert not any(f'href="{address}"' in viewers for address in managing)


def test_a_tenants_admin_cannot_give_a_key_another_tenant_or_more_than_policy(
    as_: Callable[[str], Client],
) -> None:
    client = as_("tenant-admin")
    made = client.post("/new/key/", {"tenant": "globex", "name": "mine"})
    assert "fl_" not in made.content.decode()
    larger = [{"name": "hourly", "kind": "sustained", "cost": 9e12, "period": "hour"}]
    answer = client.post(
        "/api/v1/keys/", {"tenant": "acme", "budgets": larger}, content_type="application/json"
    )
    text = text_of(client, "/usage/")
    assert "5,000,000" in text  # the tenant's own still holds beside whatever a key has
    assert answer.status_code in (201, 400)
