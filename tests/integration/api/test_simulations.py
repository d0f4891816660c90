"""Simulations by the API: what is wrong is told at once, the worker runs the rest one by one."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from fairlane import simulations, tasks
from scheduling.models import Simulation
from tests import builders

pytestmark = [pytest.mark.django_db, pytest.mark.store]
JSON = "application/json"
PAGE = "/api/v1/simulations/"


def rows(count: int = 12) -> list[dict[str, Any]]:
    return [
        {
            "arrival": n * 0.5,
            "tenant": ("acme", "globex")[n % 2],
            "prompt_tokens": 200,
            "output_tokens": 50,
            "model": "demo-chat",
        }
        for n in range(count)
    ]


def test_a_trace_under_the_policy_in_force_is_ordered_run_and_read(admin: Client) -> None:
    made = admin.post(PAGE, {"trace": rows(), "schedulers": ["fairlane", "fcfs"]}, JSON)
    assert (made.status_code, made.json()["state"]) == (202, "queued")
    assert tasks.run_simulations() == 1
    told = admin.get(made.headers["location"]).json()
    assert (told["state"], told["asked_by"], told["fault"]) == ("done", "ada", "")
    results = told["result"]["results"]
    assert [each["policy"] for each in results] == ["fairlane", "fcfs"]
    assert results[0]["ends"] == {"served": 12}
    assert {part["name"]: part["weight"] for part in results[0]["tenants"]}["acme"] == 8
    assert [each["id"] for each in admin.get(PAGE).json()["results"]] == [told["id"]]


def test_a_policy_that_is_not_in_force_is_tried_on_a_trace_as_text(admin: Client) -> None:
    policy = builders.policy()
    policy["tenants"][0]["weight"] = 2
    text = "arrival,tenant,prompt_tokens,output_tokens\n0,acme,100,10\n1,stranger,100,10\n"
    made = admin.post(PAGE, {"trace": text, "policy": policy}, JSON).json()
    tasks.run_simulations()
    result = admin.get(f"{PAGE}{made['id']}/").json()["result"]
    assert "1 tenants are not in the policy" in result["notes"][0]
    weights = {part["name"]: part["weight"] for part in result["results"][0]["tenants"]}
    assert weights["acme"] == 2


def test_the_policy_is_the_one_of_when_it_was_ordered(admin: Client) -> None:
    made = admin.post(PAGE, {"trace": rows()}, JSON).json()
    any_ = {"If-Match": "*"}
    admin.patch("/api/v1/tenants/acme/", {"weight": 1}, JSON, headers=any_)
    tasks.run_simulations()
    (result,) = admin.get(f"{PAGE}{made['id']}/").json()["result"]["results"]
    assert {part["name"]: part["weight"] for part in result["tenants"]}["acme"] == 8


@pytest.mark.parametrize(
    ("order", "field"),
    [
        ({}, "trace"),
        ({"trace": rows(), "workload": "on-off"}, "trace"),
        ({"workload": "no-such"}, "workload"),
        ({"trace": rows(), "engine": "/etc/passwd"}, "engine"),
        ({"trace": rows(), "engine": {"name": "mine"}}, "engine"),
        ({"trace": rows(), "schedulers": ["magic"]}, "schedulers"),
        ({"trace": rows(), "schedulers": []}, "schedulers"),
        ({"trace": rows(), "tier": "platinum"}, "tiers"),
        ({"trace": rows(), "speed": 2}, "speed"),
        ({"trace": rows(), "scale": 0}, "scale"),
        ({"trace": "arrival,tenant\n1,acme\n"}, "trace"),
        ({"trace": [{**rows()[0], "prompt_tokens": -1}]}, "trace"),
        ({"trace": [{**rows()[0], "tenant": f"t{n}"} for n in range(201)]}, "trace"),
        ({"trace": "x\n" * 20_002}, "trace"),
        ({"trace": rows(), "policy": "version: 1\nlanse: []\n"}, "policy.lanse"),
    ],
)
def test_what_is_wrong_is_told_when_it_is_ordered(
    admin: Client, order: dict[str, Any], field: str
) -> None:
    if "tier" in order:
        order = {**order, "trace": [{**rows()[0], "tenant": "stranger"}]}
    answer = admin.post(PAGE, order, JSON)
    assert answer.status_code == 400
    assert [error["field"] for error in answer.json()["errors"]] == [field]
    assert not Simulation.objects.exists()


def test_only_so_many_wait(admin: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulations, "WAITING", 1)
    assert admin.post(PAGE, {"trace": rows()}, JSON).status_code == 202
    assert admin.post(PAGE, {"trace": rows()}, JSON).status_code == 429


def test_the_same_order_sent_again_is_not_run_twice(admin: Client) -> None:
    headers = {"Idempotency-Key": "one"}
    first, again = (admin.post(PAGE, {"trace": rows()}, JSON, headers=headers) for _ in range(2))
    assert first.json() == again.json()
    assert tasks.run_simulations() == 1


def test_one_runs_at_a_time_and_one_whose_worker_ended_is_given_up(admin: Client) -> None:
    first, second = (admin.post(PAGE, {"trace": rows()}, JSON).json()["id"] for _ in range(2))
    Simulation.objects.filter(pk=first).update(state="running", started_at=timezone.now())
    assert tasks.run_simulations() == 0
    long_ago = timezone.now() - timedelta(hours=1)
    Simulation.objects.filter(pk=first).update(started_at=long_ago)
    assert tasks.run_simulations() == 1
    assert admin.get(f"{PAGE}{first}/").json()["state"] == "failed"
    assert admin.get(f"{PAGE}{second}/").json()["state"] == "done"


def test_one_that_takes_too_long_ends(admin: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    made = admin.post(PAGE, {"trace": rows()}, JSON).json()
    monkeypatch.setattr(simulations, "SECONDS", -1.0)
    tasks.run_simulations()
    told = admin.get(f"{PAGE}{made['id']}/").json()
    assert (told["state"], told["result"]) == ("failed", None)
    assert "give it fewer requests" in told["fault"]


def test_old_ones_are_forgotten(admin: Client) -> None:
    admin.post(PAGE, {"trace": rows()}, JSON)
    Simulation.objects.update(asked_at=timezone.now() - timedelta(days=8))
    assert tasks.forget_answers() == 1
    assert admin.get(PAGE).json()["results"] == []


def test_a_tenants_people_run_none(as_: Callable[[str], Client]) -> None:
    assert as_("operator").post(PAGE, {"trace": rows()}, JSON).status_code == 202
    assert as_("tenant-admin").post(PAGE, {"trace": rows()}, JSON).status_code == 403
    assert as_("tenant-admin").get(PAGE).status_code == 403
