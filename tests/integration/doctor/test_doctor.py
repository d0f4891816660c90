"""`manage.py doctor`: each trouble is one line that says what to do; none of it, and it exits 0."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
import valkey
from django.core.management import call_command
from django.db import OperationalError, connection

from fairlane.doctor import running
from metering.alerts import note
from metering.models import AlertDelivery, AlertDestination, GatewayCheck, LiveMinute
from metering.selectors import latest_samples
from metering.services import write_sample
from scheduling import kept as kept_counters
from scheduling.shared.keeping import Kept
from tests import builders
from tests.redis_server import redis_server

pytestmark = [pytest.mark.django_db, pytest.mark.store]

Findings = dict[str, list[dict[str, str]]]


@pytest.fixture(autouse=True)
def safe(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A deployment that is as it should be."""
    for name in [each for each in os.environ if each.startswith("FAIRLANE_")]:
        monkeypatch.delenv(name)  # the tests' own
    monkeypatch.setattr(running, "SILENT_S", 86_400.0)  # so that a slow machine's is at work
    settings.SECRET_KEY = "".join(chr(65 + n) for n in range(26)) * 2
    settings.HTTPS_ONLY = settings.SECURE_SSL_REDIRECT = True
    settings.SECURE_HSTS_INCLUDE_SUBDOMAINS = True
    settings.SECURE_HSTS_SECONDS = 1000
    settings.SESSION_COOKIE_SECURE = settings.CSRF_COOKIE_SECURE = True
    policy = builders.policy()
    for tier in policy["tiers"]:
        tier["limits"] = {**tier["limits"], "max_running": 4}
    builders.apply_policy(policy)


def sample(began: timedelta = timedelta(hours=1), **changes: Any) -> None:
    """A gateway that runs since then, as it tells of itself now."""
    now = datetime.now(UTC)
    state = builders.live_state(now) | changes
    for pool in state["pools"].values():
        for end in pool["endpoints"].values():
            end.update(available=True, simulated=False, priority_ignored=False)
            end.setdefault("engine", {"running": 0.0})
    write_sample(state["gateway"], state, now - began)
    write_sample(state["gateway"], state, now)


def kept(at: datetime) -> None:
    LiveMinute.objects.create(start=at.replace(second=0, microsecond=0), pool="demo-chat")


def doctor(capsys: pytest.CaptureFixture[str]) -> tuple[Findings, int]:
    status = 0
    try:
        call_command("doctor", "--json")
    except SystemExit as end:
        status = int(str(end.code))
    found: Findings = {}
    for finding in json.loads(capsys.readouterr().out):
        found.setdefault(finding["subject"], []).append(finding)
    return found, status


def test_all_is_well(capsys: pytest.CaptureFixture[str]) -> None:
    sample()
    kept(datetime.now(UTC))
    found, status = doctor(capsys)
    bad = [f for lines in found.values() for f in lines if f["state"] == "fail"]
    assert (bad, status) == ([], 0)
    assert {state["state"] for state in found["gateways"]} == {"ok"}
    assert found["worker"][0]["found"] == "worker and beat are at work"
    warned = {f["subject"] for lines in found.values() for f in lines if f["state"] == "warn"}
    assert warned <= ({"database"} if connection.vendor == "postgresql" else set())


def behind() -> None:
    sample(revision=0)


def without_state() -> None:
    sample(state="lost", state_since="2026-11-29T03:10:00Z", state_fault="no way there")


def apart() -> None:
    sample(state="apart")


def two_alone() -> None:
    sample()
    sample(gateway="host-b:1")


def ahead() -> None:
    sample(at=(datetime.now(UTC) + timedelta(minutes=1)).isoformat())


def endpoint_down() -> None:
    """One that policy drains is away too, which is no trouble."""
    state = builders.live_state(datetime.now(UTC))
    state["pools"]["demo-chat"]["endpoints"]["http://127.0.0.1:9101/v1"]["available"] = False
    write_sample("host-a:4711", state, datetime.now(UTC))


def worker_gone() -> None:
    sample()
    kept(datetime.now(UTC) - timedelta(hours=1))


def counters_differ() -> None:
    GatewayCheck.objects.create(
        gateway="host-a:4711", at=datetime.now(UTC), differences=[{"account": "tenant:acme/hourly"}]
    )


def message_undelivered() -> None:
    to = AlertDestination.objects.create(name="ops", address="ops@example.org")
    AlertDelivery.objects.create(
        destination=to, event="test", state="failed", due_at=datetime.now(UTC)
    )


def nothing() -> None:
    """No gateway has ever run."""


@pytest.mark.parametrize(
    ("trouble", "subject", "says", "do"),
    [
        (nothing, "gateways", "none has told of itself so far", "manage.py serve"),
        (behind, "gateways", "works by revision 0; 1 is in force", "log"),
        (without_state, "state", "is lost since 2026-11-29 03:10:00 UTC: no way there", "Redis"),
        (apart, "state", "host-a:4711 is apart", "Redis"),
        (two_alone, "state", "2 gateways, each with counters of its own", "REDIS_URL"),
        (ahead, "gateways", "s ahead of the database's", "NTP"),
        (endpoint_down, "engines", "http://127.0.0.1:9101/v1 of demo-chat takes nothing", "way"),
        (worker_gone, "worker", "worker or beat is not at work", "--role console"),
        (counters_differ, "ledger", "host-a:4711: tenant:acme/hourly", "usage verify"),
        (message_undelivered, "alerts", "1 messages could not be delivered", "Destinations"),
    ],
)
def test_a_trouble_is_a_line_and_a_failure(
    trouble: Callable[[], None],
    subject: str,
    says: str,
    do: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    trouble()
    found, status = doctor(capsys)
    [line] = [line for line in found[subject] if line["state"] == "fail"]
    assert says in line["found"]
    assert do in line["do"]
    assert status == 1


def test_what_the_policy_leaves_open_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    policy = builders.policy()
    policy["pools"][0]["api_key_env"] = "A_KEY_THAT_NOBODY_SET"
    policy["tiers"][1] |= {"limits": {}, "budgets": []}
    builders.apply_policy(policy, "Loose")
    sample(revision=2)
    found, status = doctor(capsys)
    assert "A_KEY_THAT_NOBODY_SET" in found["secrets"][0]["found"]
    [warned] = [line for line in found["policy"] if line["state"] == "warn"]
    assert "umbrella, hooli" in warned["found"]
    assert "stark" not in warned["found"], "it is suspended"
    assert status == 1


def test_settings_without_tls_are_one_warning_and_a_short_key_a_failure(
    settings: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    settings.HTTPS_ONLY = settings.SECURE_SSL_REDIRECT = settings.SESSION_COOKIE_SECURE = False
    settings.SECRET_KEY = "short"
    found, status = doctor(capsys)
    assert [line["state"] for line in found["settings"]] == ["warn", "fail"]
    assert "HTTPS_ONLY" in found["settings"][0]["found"]
    assert status == 1


def test_a_redis_out_of_reach_is_a_line_and_the_other_checks_go_on(
    settings: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    settings.REDIS_URL = "redis://127.0.0.1:1/0"
    found, status = doctor(capsys)
    assert found["redis"][0]["state"] == "fail"
    assert "nobody listens at the host and port in REDIS_URL" in found["redis"][0]["found"]
    assert "alerts" in found
    assert status == 1


def test_endpoints_that_nobody_tells_of_and_loads_that_none_tells_are_warned_of(
    capsys: pytest.CaptureFixture[str],
) -> None:
    state = builders.live_state(datetime.now(UTC))
    [end, *_] = state["pools"]["demo-chat"]["endpoints"].values()
    end |= {"available": True, "auto": True, "engine": None}
    del state["pools"]["org/code-7b"]
    write_sample("host-a:4711", state, datetime.now(UTC))
    found, _ = doctor(capsys)
    said = {line["found"]: line["state"] for line in found["engines"]}
    assert said["no gateway tells of http://127.0.0.1:9103/v1 of org/code-7b"] == "warn"
    [auto] = [words for words in said if "`capacity: auto` stays where it began" in words]
    assert (said[auto], "demo-chat" in auto) == ("warn", True)


@pytest.fixture
def redis(settings: Any) -> Iterator[valkey.Valkey]:
    with redis_server() as server, server.client() as client:
        settings.REDIS_URL = server.url
        yield client


def of(found: Findings, subject: str, state: str) -> list[str]:
    return [line["found"] for line in found[subject] if line["state"] == state]


def test_of_a_whole_state_it_says_what_is_done_when_it_is_lost(
    redis: valkey.Valkey, settings: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    settings.FAIRLANE_STATE_LOSS = "fail-open"
    sample(state="shared")
    kept_counters.save("demo-chat", Kept([], {}), datetime.now(UTC))
    found, _ = doctor(capsys)
    [line] = found["state"]
    assert line["state"] == "ok"
    assert "whole, as 1 gateways see it" in line["found"]
    assert "FAIRLANE_STATE_LOSS=fail-open" in line["found"]
    assert of(found, "redis", "fail") == []


@pytest.mark.parametrize(
    ("seen", "level", "words"),
    [
        # Counters that nobody keeps; a gateway without the Redis of the others.
        ("shared", "warn", "were never kept"),
        ("local", "fail", "runs without REDIS_URL"),
    ],
)
def test_a_state_that_is_not_kept_or_not_shared_is_told(
    redis: valkey.Valkey, capsys: pytest.CaptureFixture[str], seen: str, level: str, words: str
) -> None:
    sample(state=seen)
    found, _ = doctor(capsys)
    [told] = of(found, "state", level)
    assert words in told


def test_without_a_pool_there_are_no_counters_to_keep(
    redis: valkey.Valkey, capsys: pytest.CaptureFixture[str]
) -> None:
    sample(state="shared", pools={})
    found, _ = doctor(capsys)
    assert of(found, "state", "warn") == []


def test_the_server_is_told_by_its_own_name(
    redis: valkey.Valkey, capsys: pytest.CaptureFixture[str]
) -> None:
    told: Any = redis.info()
    found, _ = doctor(capsys)
    own = f"Valkey {told['valkey_version']}, like Redis {told['redis_version']}, "
    assert of(found, "redis", "ok")[0].startswith(own)


def test_records_of_another_release_in_redis_are_a_failure_that_names_who_uses_them(
    redis: valkey.Valkey, capsys: pytest.CaptureFixture[str]
) -> None:
    redis.set("fl:pools", msgspec.msgpack.encode(["demo-chat"]))
    redis.set("fl:{demo-chat}:pool", b"\0" * 64)
    redis.zadd("fl:{demo-chat}:replicas", {"old:1-abc.0": datetime.now(UTC).timestamp() + 3600})
    found, _ = doctor(capsys)
    [line] = [line for line in found["redis"] if line["state"] == "fail"]
    assert "in use by old:1-abc.0" in line["found"]
    assert "Stop the gateways of that release" in line["do"]


def test_a_redis_that_is_nearly_full_or_may_forget_is_told(
    redis: valkey.Valkey, capsys: pytest.CaptureFixture[str]
) -> None:
    redis.config_set("maxmemory-policy", "allkeys-lru")
    redis.config_set("maxmemory", "100kb")
    found, _ = doctor(capsys)
    assert "allkeys-lru" in of(found, "redis", "fail")[0]
    assert any("are in use" in words for words in of(found, "redis", "warn"))


def test_a_redis_that_is_a_replica_is_a_failure(
    redis: valkey.Valkey, capsys: pytest.CaptureFixture[str]
) -> None:
    redis.replicaof("127.0.0.1", 1)
    found, _ = doctor(capsys)
    assert "it is a replica of another and takes no writes" in of(found, "redis", "fail")


def test_an_open_critical_alert_is_a_warning(capsys: pytest.CaptureFixture[str]) -> None:
    note("endpoint_down", "http://127.0.0.1:9101/v1 of demo-chat", "down", datetime.now(UTC))
    found, _ = doctor(capsys)
    assert [line["state"] for line in found["alerts"]] == ["warn"]
    assert "demo-chat" in found["alerts"][0]["found"]


def test_a_gateway_that_was_stopped_a_moment_ago_is_told_as_silent(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(running, "HEARD_S", 86_400.0)  # so that a slow machine still hears it
    then = datetime.now(UTC) - timedelta(minutes=1)
    state = builders.live_state(then)
    write_sample(state["gateway"], state, then)
    monkeypatch.setattr(running, "SILENT_S", 5.0)
    found, status = doctor(capsys)
    told = found["gateways"][0]["found"]
    assert re.search(r"none at work; silent, so stopped or hung: host-a:4711 \(for \d+ s\)", told)
    assert status == 1


def test_a_person_reads_lines(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        call_command("doctor", "--no-color")
    lines = capsys.readouterr().out.splitlines()
    place = lines.index("FAIL  gateways: none has told of itself so far")
    assert lines[place + 1] == "      Start `manage.py serve`."


@pytest.mark.parametrize(("apart_s", "way"), [(600, "ahead of"), (-600, "behind")])
def test_a_gateway_whose_clock_is_wrong_is_heard_of_and_named(
    capsys: pytest.CaptureFixture[str], apart_s: int, way: str
) -> None:
    """Its samples go by the database's clock: else one that is behind would not be there at all,
    and one that is ahead would be shown as it was ten minutes ago."""
    state = builders.live_state(datetime.now(UTC) + timedelta(seconds=apart_s))
    write_sample("host-a:4711", state | {"gateway": "host-a:4711"})
    assert [each["gateway"] for each in latest_samples()] == ["host-a:4711"]
    found, status = doctor(capsys)
    told = [finding["found"] for finding in found["gateways"]]
    assert told[0] == "1 at work: host-a:4711"
    assert any(
        re.search(rf"clock of host-a:4711 is \d+\.\d s {way} the database's", t) for t in told
    )
    assert status == 1


def test_without_its_database_the_doctor_says_so_once(capsys: pytest.CaptureFixture[str]) -> None:
    def away(*_: Any) -> None:
        raise OperationalError("couldn't get a connection after 5.00 sec")

    with connection.execute_wrapper(away):
        found, status = doctor(capsys)
    assert set(found) == {"settings", "secrets", "database", "redis"}
    (line,) = found["database"]
    assert line["state"] == "fail"
    assert "out of reach" in line["found"]
    assert status == 1


def test_a_setting_that_nothing_reads_is_named_with_what_was_meant(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAIRLANE_DRAIN", "3")
    found, _ = doctor(capsys)
    (line,) = [f for f in found["settings"] if f["found"].startswith("FAIRLANE_DRAIN ")]
    assert line["state"] == "warn"
    assert line["do"].startswith("Is FAIRLANE_DRAIN_SECONDS meant?")


@pytest.mark.postgres
def test_a_role_that_may_not_divide_the_records_is_told(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with connection.cursor() as cursor:
        cursor.execute("CREATE ROLE fairlane_doctor_test")
        for statement in (
            "GRANT USAGE ON SCHEMA public TO fairlane_doctor_test",
            "GRANT SELECT, INSERT ON ALL TABLES IN SCHEMA public TO fairlane_doctor_test",
            "SET LOCAL ROLE fairlane_doctor_test",
        ):
            cursor.execute(statement)
    found, _ = doctor(capsys)
    assert any("metering_usagerow is not this role's" in f["found"] for f in found["database"])
