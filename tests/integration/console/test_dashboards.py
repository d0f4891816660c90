"""What the dashboards say equals what the records say, and says so plainly when there is none."""

from __future__ import annotations

import warnings
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.template.loader import render_to_string
from django.test import Client
from django.utils import timezone

from metering.dashboards import figures, ranges
from metering.dashboards.boards import KINDS
from metering.dashboards.overview import overview
from metering.dashboards.watching import Board, Filters, Watch
from metering.models import GatewaySample, UsageRow
from tenants import selectors, services
from tenants.core.document import Document
from tests import builders

pytestmark = [pytest.mark.django_db, pytest.mark.store]
AT = datetime(2026, 11, 29, 12, 0, tzinfo=UTC)
WEIGHTS = {"acme": 8.0, "globex": 4.0, "initech": 4.0, "umbrella": 1.0, "hooli": 2.0, "stark": 1.0}
DOCUMENT = Document.model_validate(builders.policy())
HOUR = ranges.between(AT - timedelta(hours=1), AT, AT)


def watch(span: ranges.Span = HOUR, **filters: str) -> Watch:
    return Watch(span, Filters(**filters), DOCUMENT, AT)


@pytest.fixture
def seen(db: None) -> Board:
    builders.seed_usage(AT, hours=1)
    builders.seed_samples(AT)
    return overview(watch())


def drawn(board: Board, name: str) -> dict[str, Any]:
    return next(chart.figure for chart in board.charts if chart.name == name)


def column(board: Board, name: str) -> dict[str, float]:
    """The sum of each column of a chart's CSV."""
    chart = next(chart for chart in board.charts if chart.name == name)
    sums: Counter[str] = Counter()
    for _, *values in chart.rows:
        for title, value in zip(chart.header[1:], values, strict=True):
            sums[title] += value or 0
    return dict(sums)


def records() -> list[UsageRow]:
    return list(UsageRow.objects.filter(at__gte=AT - timedelta(hours=1), at__lt=AT))


def test_totals_and_rows_equal_the_records(seen: Board) -> None:
    rows, totals = records(), seen.context["totals"]
    assert totals["requests"] == len(rows)
    assert totals["tokens"] == sum(row.prompt_tokens + row.completion_tokens for row in rows)
    assert totals["throttled"] == sum(row.status == 429 for row in rows)
    by_tenant = Counter(row.tenant for row in rows)
    assert {row.name: row.share.requests for row in seen.context["rows"] if row.share} == by_tenant


def test_the_charts_hold_every_token_and_every_throttle(seen: Board) -> None:
    counted: Counter[str] = Counter()
    for row in records():
        counted[row.tenant] += row.prompt_tokens + row.completion_tokens
    assert column(seen, "tokens") == counted
    per_minute = {t["name"]: sum(t["y"]) for t in drawn(seen, "tokens")["data"]}
    assert per_minute == pytest.approx(counted)  # steps of a minute, and a rate a minute
    refused = KINDS["throttles"].make(watch())
    assert sum(column(refused, "reasons").values()) == sum(row.status == 429 for row in records())


def test_debt_is_drawn_with_its_bound_on_both_sides(seen: Board) -> None:
    debt = drawn(seen, "debt")
    assert {trace["name"] for trace in debt["data"]} == {"acme", "globex", "initech"}
    assert [shape["y0"] for shape in debt["layout"]["shapes"]] == [12_000, -12_000]
    assert all(sum(value is not None for value in trace["y"]) == 60 for trace in debt["data"])


def test_what_weights_imply_adds_up_to_one(seen: Board) -> None:
    implied = [row.by_weight for row in seen.context["rows"] if row.by_weight is not None]
    assert sum(implied) == pytest.approx(1)


@pytest.mark.parametrize("name", KINDS)
def test_every_figure_is_one_that_plotly_takes(seen: Board, name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # plotly's own imports
        import plotly.graph_objects as plotly

    board = KINDS[name].make(watch(tenant="acme" if name == "neighbours" else ""))
    assert board.charts
    for chart in board.charts:
        assert chart.figure["data"] or chart.name == "entitled" or name == "budgets", chart.name
        plotly.Figure(**chart.figure)


def test_a_tenants_colour_does_not_depend_on_who_else_is_shown() -> None:
    ink = figures.Ink(list(WEIGHTS))
    alone = figures.lines([AT], {"hooli": [1.0]}, ink)["data"][0]
    among = figures.lines([AT], {name: [1.0] for name in WEIGHTS}, ink)["data"]
    assert alone["line"] in [trace["line"] for trace in among if trace["name"] == "hooli"]
    looks = {(ink.colour(f"t{n}"), ink.dash(f"t{n}")) for n in range(32)}
    many = figures.Ink([f"t{n}" for n in range(32)])
    assert len({(many.colour(f"t{n}"), many.dash(f"t{n}")) for n in range(32)}) == 32 > len(looks)


def test_more_tenants_than_a_chart_bears_become_one(db: None) -> None:
    for place in range(20):
        UsageRow.objects.create(
            request_id=f"r{place}",
            at=AT - timedelta(minutes=5),
            tenant=f"t{place:02}",
            prompt_tokens=100 + place,
            cost=100 + place,
        )
    builders.count_minutes([AT - timedelta(minutes=5)])
    seen = overview(watch())
    tokens = column(seen, "tokens")
    assert len(tokens) == 13
    assert sum(tokens.values()) == sum(100 + place for place in range(20))
    assert len(seen.context["rows"]) == 20


def test_nothing_yet_says_what_to_do(admin: Client) -> None:
    text = admin.get("/").content.decode()
    assert "No gateway is running" in text
    assert "No requests in the last 1 h" in text
    assert "No gateway is running" in admin.get("/tenants/acme/").content.decode()


def test_simulated_engines_are_named_as_such(admin: Client) -> None:
    builders.seed_samples(minutes=0)
    assert '<span class="tag warn">simulated</span>' in admin.get("/").content.decode()
    assert '<span class="tag warn">simulated</span>' in admin.get("/pools/").content.decode()


def test_a_drained_endpoint_is_not_called_down(db: None) -> None:
    builders.apply_policy()
    url = "http://127.0.0.1:9101/v1"
    endpoints = [{"url": url, "drain": True}]
    services.edit_object("pool", "demo-chat", {"endpoints": endpoints}, actor=builders.ROOT)
    state = {"available": False, "running": 0, "max_running": 16, "max_load": 60_000}
    pools = {"demo-chat": {"endpoints": {url: state}}}
    GatewaySample.objects.create(gateway="one", at=AT, state={"pools": pools})
    board = overview(Watch(HOUR, Filters(), selectors.current_document(), AT))
    shown = render_to_string("metering/pools_live.html", {"pools": board.context["live"].pools})
    assert '<span class="tag warn">drained</span>' in shown
    assert ">down<" not in shown


def test_a_refresh_sends_the_changing_part_only(admin: Client) -> None:
    whole = admin.get("/").content.decode()
    part = admin.get("/", headers={"HX-Request": "true"}).content.decode()
    assert "<html" in whole
    assert "<html" not in part
    assert "kpis" in part


@pytest.mark.parametrize("key", ["15m", "6h", "24h", "nonsense", ""])
def test_each_range_is_answered(admin: Client, key: str) -> None:
    builders.seed_usage(timezone.now(), hours=0.3)
    assert admin.get(f"/?range={key}").status_code == 200
    assert admin.get(f"/usage/?tenant=acme&range={key}").status_code == 200


@pytest.mark.parametrize("page", ["/", "/usage/?tenant=acme", "/tenants/acme/", "/tenants/"])
def test_the_number_of_queries_does_not_grow_with_the_data(
    admin: Client, page: str, django_assert_max_num_queries: Any
) -> None:
    admin.get(page)
    with django_assert_max_num_queries(30):
        admin.get(page)
    builders.seed_usage(timezone.now(), hours=1)
    builders.seed_samples(minutes=10)
    with django_assert_max_num_queries(30):
        admin.get(page)


def test_a_tenant_sees_its_own_usage_whatever_it_asks_for(as_: Any) -> None:
    builders.seed_usage(timezone.now(), hours=0.5)
    builders.seed_samples(minutes=0)
    text = as_("tenant-viewer").get("/usage/?tenant=globex").content.decode()
    assert "Usage of acme" in text
    for other in ("globex", "initech", "umbrella", "hooli", "stark"):
        assert other not in text.replace("?tenant=globex", "")  # what was asked, in links
    assert "896,800" in text
    assert as_("tenant-viewer").get("/").headers["location"] == "/usage/"


def test_a_bound_far_beyond_every_debt_is_named_and_does_not_set_the_scale() -> None:
    ink = figures.Ink(["acme"])
    near, far = (figures.debts([AT], {"acme": [-100.0]}, ink, bound) for bound in (700.0, 2.4e6))
    assert [shape["y0"] for shape in near["layout"]["shapes"]] == [700.0, -700.0]
    assert "shapes" not in far["layout"]
    assert far["layout"]["yaxis"]["range"] == [-130.0, 130.0]
    assert "±2,400,000" in far["layout"]["annotations"][0]["text"]
    level = figures.debts([AT], {"acme": [0.0]}, ink, 700.0)["layout"]
    assert len(level["shapes"]) == 2


def test_plotly_is_served_from_here_and_kept_for_long(client: Client, admin: Client) -> None:
    address = next(
        line.split('src="')[1].split('"')[0]
        for line in admin.get("/").content.decode().splitlines()
        if "plotly-" in line
    )
    answer = client.get(address, headers={"accept-encoding": "gzip"})
    assert answer.headers["content-encoding"] == "gzip"
    assert "immutable" in answer.headers["cache-control"]
    assert len(answer.content) < 2_000_000
    assert b"plotly" in client.get(address).content[:400].lower()
