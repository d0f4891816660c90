"""Every reason for a refusal has its words: whoever reads `throttle_reason` learns what helps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import get_args

import pytest

from metering.dashboards.reasons import LIMITS, of_limit, why
from scheduling.core.model import DropReason
from tenants.core.effective import LIMITS as LIMIT_NAMES


@dataclass
class Ended:
    status: int = 200
    finish_reason: str = "stop"
    throttle_reason: str = ""


@pytest.mark.parametrize("reason", [*LIMIT_NAMES, *get_args(DropReason), "predicted_wait"])
def test_each_limit_and_each_way_out_of_the_queue_has_its_words(reason: str) -> None:
    assert of_limit(reason) is LIMITS[reason]


@pytest.mark.parametrize(
    ("account", "text"),
    [
        ("tenant:acme/hourly", "Budget hourly of the tenant was used up"),
        ("application:acme/bot/daily", "Budget daily of application bot was used up"),
        ("key:abcdefghijkm/own", "Budget own of key fl_abcdefghijkm was used up"),
    ],
)
def test_a_budget_is_named_with_whose_it_is(account: str, text: str) -> None:
    assert of_limit(account).text == text


@pytest.mark.parametrize(
    ("kind", "advice"),
    [
        ("burst", "It refills all the time: wait for the answer's retry-after."),
        ("sustained", "It starts anew when its window ends."),
        ("", "It is not in force any more."),
    ],
)
def test_what_helps_is_said_of_the_kind_of_budget_that_it_is(kind: str, advice: str) -> None:
    account = "tenant:acme/hourly"
    kinds = {account: kind} if kind else {}
    assert of_limit(account, kinds).advice == advice
    ended = Ended(status=429, finish_reason="throttled", throttle_reason=account)
    assert why(ended, kinds) == of_limit(account, kinds)


def test_a_reason_that_is_not_known_is_told_as_it_is() -> None:
    assert of_limit("something_new").text == "something_new"


@pytest.mark.parametrize(("status", "end"), [(502, "error"), (504, "timeout")])
def test_nobody_is_sent_to_a_retry_after_that_the_answer_did_not_have(
    status: int, end: str
) -> None:
    told = why(Ended(status=status, finish_reason=end))
    assert told is not None
    assert "retry-after" not in told.advice


def test_what_was_served_needs_no_reason_and_what_was_not_has_one() -> None:
    assert why(Ended()) is None
    assert why(Ended(status=499, finish_reason="cancelled")) is not None
    refused = why(Ended(status=429, finish_reason="throttled", throttle_reason="max_running"))
    assert refused is LIMITS["max_running"]
